"""Renders a report as an HTML page, Markdown, LaTeX, and text for a terminal, in one module each."""
