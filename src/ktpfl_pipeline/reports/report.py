"""A finished report: its content in all forms."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ktpfl_pipeline.reports.figures.base import saved
from ktpfl_pipeline.reports.model import Content
from ktpfl_pipeline.reports.parquet import to_parquet
from ktpfl_pipeline.reports.render import html, latex, markdown, terminal

KINDS = ("png", "svg", "pdf")


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
        """Each figure in all `KINDS`, by file name."""
        return {f"{name}.{kind}": saved(figure, kind) for name, figure in self.figures.items() for kind in KINDS}

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
