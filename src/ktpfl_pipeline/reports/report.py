"""A finished report: its content in all file formats."""

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from ktpfl_pipeline.reports.figures.base import preview, saved, svg_file
from ktpfl_pipeline.reports.model import Content, Picture
from ktpfl_pipeline.reports.render import html, latex, markdown, terminal
from ktpfl_pipeline.reports.style import BRIEF, MARKDOWN, PAGE, check_kinds

PREVIEW = "preview.png"
"""File of the first figure in the shape that kedro-viz shows."""


class Report(Content):
    """A report in all of its file formats."""

    @cached_property
    def html(self) -> str:
        """The HTML page. It contains its figures and loads no other file."""
        return html.page(self)

    @cached_property
    def markdown(self) -> str:
        """The report as Markdown, with links to ``figures/<name>.svg``."""
        return markdown.document(self)

    def latex(self, columns: Collection[str] = ()) -> Mapping[str, str]:
        """Return the tables with captions as LaTeX, by file name; see `latex.tables`."""
        return latex.tables(self, columns)

    @cached_property
    def console(self) -> str:
        """Summary and main table in plain text, as wide as the terminal."""
        return terminal.text(self)

    @property
    def files(self) -> Mapping[str, str]:
        texts = {PAGE: self.html, MARKDOWN: self.markdown}
        return {**texts, BRIEF: terminal.text(self, terminal.USUAL), **self.data}

    def pictures(self, kinds: Collection[str] = ()) -> dict[str, bytes]:
        """Return each figure as SVG and in further `kinds`, and a preview for kedro-viz, by file name."""
        check_kinds(kinds)
        drawn = [block for block in self.blocks if isinstance(block, Picture)]
        files = {f"{picture.name}.svg": svg_file(picture.svg).encode() for picture in drawn}
        files |= {f"{each.name}.{kind}": saved(each.figure, kind) for each in drawn for kind in kinds}
        return {**files, PREVIEW: self.preview} if drawn else {}

    @cached_property
    def preview(self) -> bytes:
        """The first figure as kedro-viz shows it."""
        return preview(next(block.figure for block in self.blocks if isinstance(block, Picture)))

    def write(self, folder: Path, kinds: Collection[str] = (), columns: Collection[str] = ()) -> None:
        """Write all files below a folder; see `pictures` for `kinds`, and `latex` for `columns`."""
        pictures = {f"figures/{name}": content for name, content in self.pictures(kinds).items()}
        texts = {name: text.encode() for name, text in {**self.files, **self.latex(columns)}.items()}
        for name, content in {**texts, **pictures}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
