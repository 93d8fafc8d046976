"""Datasets that kedro-datasets does not have: a folder to work in, a finished report, and files that are always whole.

`kedro run --only-missing-outputs` takes for done what exists. So a file is written beside the old one and takes its
place in one step, with the checksum of its content in a file beside it, and exists only if the two agree.
"""

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from kedro.io import AbstractDataset
from kedro_datasets._typing import HTMLPreview
from kedro_datasets.json.json_dataset import JSONDataset as PlainJSONDataset
from kedro_datasets.pandas.csv_dataset import CSVDataset as PlainCSVDataset
from kedro_datasets.plotly.json_dataset import JSONDataset as PlainFigureDataset

from ktpfl_pipeline.core.errors import InputError, system_error, unwritable

PARTIAL = ".partial"
"""Suffix of a folder that is not, or no longer, a report; whoever gathers reports passes over it."""
SUMS = "SHA256SUMS"
"""The file with the checksums of a report's files."""


def sums(folder: Path, files: Iterable[Path]) -> str:
    """Return the checksums of files in a folder as ``sha256sum`` writes them, sorted by name."""
    lines = []
    for file in sorted(files):
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        lines.append(_line(digest, file.relative_to(folder).as_posix()))
    return "".join(lines)


def _line(digest: str, name: str) -> str:
    return f"{digest}  {name}\n"


def put(partial: Path, file: Path) -> None:
    """Let the file `partial` take the place of `file`, and keep its checksum beside it."""
    partial.replace(file)
    _sum_of(file).write_text(sums(file.parent, [file]), encoding="utf-8")


def is_whole(file: Path) -> bool:
    """Return whether a file is as `put` left it."""
    try:
        return _sum_of(file).read_text(encoding="utf-8") == sums(file.parent, [file])
    except (OSError, UnicodeDecodeError):  # one of the two is not there
        return False


def content_of(file: Path) -> bytes:
    """Return what is in a file that `put` left.

    Raises:
        ValueError: if a checksum is beside it which is not that of the content.
    """
    content = file.read_bytes()
    expected = _line(hashlib.sha256(content).hexdigest(), file.name)  # of the bytes that are returned
    if _sum_of(file).exists() and _sum_of(file).read_bytes() != expected.encode():
        raise ValueError("its checksum is not the one beside it: it was changed, or writing it was interrupted")
    return content


@contextlib.contextmanager
def all_or_nothing(place: Path, partial: Path) -> Iterator[None]:
    """Leave nothing half-written, and say in one sentence what the system did not let be written.

    Args:
        place: what is being written.
        partial: where it is until it is whole.
    """
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink(missing_ok=True)
        if (reason := system_error(error)) is None:
            raise
        raise unwritable(str(place), reason) from error


def _sum_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


class _Whole:
    """What makes a dataset of one file, as kedro-datasets has them, write it whole and know whether it is."""

    _filepath: Any
    _load_args: Any

    def load(self) -> Any:
        """Return what is in the file; one that cannot be read, or is not as it was written, is the user's to mend."""
        file = Path(self._filepath)
        try:
            return self._parsed(content_of(file))
        except Exception as error:  # bytes of any kind make readers stumble in any way
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"{file} cannot be read ({reason}): delete it and give the same command again, which takes finished "
                "runs from their checkpoints."
            ) from error

    def _parsed(self, content: bytes) -> Any:
        """Return what a file with this content holds."""
        raise NotImplementedError

    def save(self, data: Any) -> None:
        """Write the file beside the old one, then put it in its place."""
        place = self._filepath
        self._filepath = place.with_name(place.name + PARTIAL)
        try:
            with all_or_nothing(Path(place), Path(self._filepath)):
                super().save(data)  # type: ignore[misc]
                put(Path(self._filepath), Path(place))
        finally:
            self._filepath = place

    def _exists(self) -> bool:
        return is_whole(Path(self._filepath))


class JSONDataset(_Whole, PlainJSONDataset):  # type: ignore[misc]
    """A JSON file."""

    def _parsed(self, content: bytes) -> Any:
        return json.loads(content)


class CSVDataset(_Whole, PlainCSVDataset):  # type: ignore[misc]
    """A table."""

    def _parsed(self, content: bytes) -> Any:
        import pandas as pd

        return pd.read_csv(io.BytesIO(content), **self._load_args)


class FigureDataset(_Whole, PlainFigureDataset):  # type: ignore[misc]
    """An interactive figure, which kedro-viz shows."""

    def _parsed(self, content: bytes) -> Any:
        import plotly.io

        return plotly.io.from_json(content.decode(), **self._load_args)


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
        with all_or_nothing(place, partial):
            (partial / "figures").mkdir(parents=True)
            for name, text in {**data.files, "table.txt": data.console}.items():
                (partial / name).write_text(text, encoding="utf-8")
            for name, figure in data.figures.items():
                figure.savefig(partial / "figures" / f"{name}.png", dpi=200)
                figure.savefig(partial / "figures" / f"{name}.svg")
            (partial / SUMS).write_text(_report_sums(partial), encoding="utf-8")
            _put(partial, place)

    def console(self) -> str:
        """Return the comparison table as plain text for a terminal."""
        return self.page.with_name("table.txt").read_text(encoding="utf-8")

    def preview(self) -> HTMLPreview:
        """Return the report as kedro-viz shows it."""
        return HTMLPreview(self.page.read_text(encoding="utf-8"))

    def _exists(self) -> bool:
        place = self.page.parent
        try:
            return self.page.is_file() and (place / SUMS).read_text(encoding="utf-8") == _report_sums(place)
        except (OSError, UnicodeDecodeError):
            return False

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.folder)}


def _report_sums(place: Path) -> str:
    """Return the checksums of a report: of its files, and not of other reports in folders below."""
    files = [*place.glob("*"), *place.glob("figures/*")]
    return sums(place, (file for file in files if file.is_file() and file.name != SUMS))


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
