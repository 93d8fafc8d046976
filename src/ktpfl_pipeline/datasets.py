"""The two kinds of dataset that kedro-datasets does not have: a folder to work in, and a finished report."""

import shutil
from pathlib import Path
from typing import Any, NoReturn

from kedro.io import AbstractDataset
from kedro_datasets._typing import HTMLPreview

PARTIAL = ".partial"
"""Suffix of a folder that is not, or no longer, a report; whoever gathers reports passes over it."""


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
    """The folder of reports: a page that opens without a server, Markdown, LaTeX, CSV, the figures as PNG and SVG.

    A report that names a variant has a folder of its own below this one. What is read is the report that was saved
    last.
    """

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the folder.

        Args:
            filepath: the folder, relative to the project.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.folder = Path(filepath)
        self.metadata = metadata

    @property
    def page(self) -> Path:
        """The page of the report that was saved last; where there is none, that of a report without a variant."""
        pages = [page for page in self.folder.glob("**/report.html") if page.parent.suffix != PARTIAL]
        return max(pages, key=lambda page: page.stat().st_mtime_ns, default=self.folder / "report.html")

    def load(self) -> str:
        """Return the report as Markdown."""
        return self.page.with_name("report.md").read_text(encoding="utf-8")

    def save(self, data: Any) -> None:
        """Write the report beside the old one of the same variant, then put it in its place, whole."""
        place = self.folder / data.variant
        partial = place.with_name(place.name + PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "figures").mkdir(parents=True)
        for name, text in {**data.files, "table.txt": data.console}.items():
            (partial / name).write_text(text, encoding="utf-8")
        for name, figure in data.figures.items():
            figure.savefig(partial / "figures" / f"{name}.png", dpi=200)
            figure.savefig(partial / "figures" / f"{name}.svg")
        _put(partial, place)

    def console(self) -> str:
        """Return the comparison table as plain text for a terminal."""
        return self.page.with_name("table.txt").read_text(encoding="utf-8")

    def preview(self) -> HTMLPreview:
        """Return the report as kedro-viz shows it."""
        return HTMLPreview(self.page.read_text(encoding="utf-8"))

    def _exists(self) -> bool:
        return self.page.exists()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.folder)}


def _put(partial: Path, place: Path) -> None:
    """Move the folder `partial` to `place`; what was there goes when that is done, and comes back when it fails."""
    retired = place.with_name(place.name + ".old" + PARTIAL)
    shutil.rmtree(retired, ignore_errors=True)
    if place.exists():
        place.rename(retired)
    try:
        partial.replace(place)
    except OSError:
        if retired.exists():
            retired.rename(place)
        raise
    shutil.rmtree(retired, ignore_errors=True)
