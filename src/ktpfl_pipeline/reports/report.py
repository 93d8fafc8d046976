"""A finished report: its content in all forms."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ktpfl_pipeline.reports.figures.base import saved, svg_file
from ktpfl_pipeline.reports.model import Content, Picture
from ktpfl_pipeline.reports.parquet import to_parquet
from ktpfl_pipeline.reports.render import html, latex, markdown, terminal


class Report(Content):
    """A report in every form in which it is kept."""

    @cached_property
    def html(self) -> str:
        """A page with its figures in it; it loads nothing."""
        return html.page(self)

    @cached_property
    def markdown(self) -> str:
        """The same without its looks; it expects the figures as ``figures/<name>.png``."""
        return markdown.document(self)

    @cached_property
    def latex(self) -> str:
        """Tables with captions, which need the package booktabs."""
        return latex.tables(self)

    @cached_property
    def console(self) -> str:
        """Summary and main table in plain text, as wide as the terminal."""
        return terminal.text(self)

    @property
    def files(self) -> Mapping[str, str]:
        """The texts of the report by file name."""
        texts = {"report.html": self.html, "report.md": self.markdown, "table.tex": self.latex}
        return {**texts, "table.txt": terminal.text(self, terminal.USUAL), **self.data}

    @cached_property
    def pictures(self) -> Mapping[str, bytes]:
        """Each figure as PNG, SVG and PDF, by file name."""
        found: dict[str, bytes] = {}
        for picture in (block for block in self.blocks if isinstance(block, Picture)):
            found[f"{picture.name}.svg"] = svg_file(picture.svg).encode()
            found |= {f"{picture.name}.{kind}": saved(picture.figure, kind) for kind in ("png", "pdf")}
        return found

    @cached_property
    def parquet(self) -> Mapping[str, bytes]:
        """Each table of numbers as Parquet, by file name: the same rows as in the CSV file of that name."""
        csv = {name.removesuffix(".csv"): text for name, text in self.data.items() if name.endswith(".csv")}
        return {f"{name}.parquet": to_parquet(text) for name, text in csv.items()}

    def write(self, folder: Path) -> None:
        """Write all of it below a folder, the figures into ``figures/``."""
        folder.mkdir(parents=True)
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name, content in self.parquet.items():
            (folder / name).write_bytes(content)
        if self.pictures:
            (folder / "figures").mkdir()
        for name, picture in self.pictures.items():
            (folder / "figures" / name).write_bytes(picture)
