"""A report's content as a page, as Markdown, as LaTeX and as text for a terminal: one file each."""
