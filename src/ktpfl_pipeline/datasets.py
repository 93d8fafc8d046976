"""The two kinds of dataset that kedro-datasets does not have: a folder to work in, and a finished report."""

import shutil
from pathlib import Path
from typing import Any, NoReturn

from kedro.io import AbstractDataset
from kedro_datasets._typing import HTMLPreview


class FolderDataset(AbstractDataset[Any, Path]):
    """A folder of the project: loading it makes it where it is missing and returns its path."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the folder.

        Args:
            filepath: the folder, relative to the project.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.folder = Path(filepath)
        self.metadata = metadata

    def load(self) -> Path:
        """Return the folder's path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder

    def save(self, data: Any) -> NoReturn:
        """Refuse: what is in the folder is written by whoever was given its path."""
        raise NotImplementedError("a FolderDataset is an input: write into the folder it returns")

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.folder)}


class ReportDataset(AbstractDataset[Any, str]):
    """A report's folder: one page that opens without a server, Markdown, LaTeX, and the figures as PNG and SVG."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the folder.

        Args:
            filepath: the folder, relative to the project; it is replaced whole.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.folder = Path(filepath)
        self.page = self.folder / "report.html"
        self.metadata = metadata

    def load(self) -> str:
        """Return the report as Markdown."""
        return (self.folder / "report.md").read_text(encoding="utf-8")

    def save(self, data: Any) -> None:
        """Write the report beside the old one, then put it in its place: half a report never stands there."""
        partial = self.folder.with_name(self.folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "figures").mkdir(parents=True)
        for name, text in {
            "report.html": data.html,
            "report.md": data.markdown,
            "table.tex": data.latex,
            "table.txt": data.console,
        }.items():
            (partial / name).write_text(text, encoding="utf-8")
        for name, figure in data.figures.items():
            figure.savefig(partial / "figures" / f"{name}.png", dpi=200)
            figure.savefig(partial / "figures" / f"{name}.svg")
        shutil.rmtree(self.folder, ignore_errors=True)
        partial.replace(self.folder)

    def console(self) -> str:
        """Return the comparison table as plain text for a terminal."""
        return (self.folder / "table.txt").read_text(encoding="utf-8")

    def preview(self) -> HTMLPreview:
        """Return the report as kedro-viz shows it."""
        return HTMLPreview(self.page.read_text(encoding="utf-8"))

    def _exists(self) -> bool:
        return self.page.exists()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.folder)}
