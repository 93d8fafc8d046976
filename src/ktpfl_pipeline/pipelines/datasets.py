"""All datasets of the catalog: files that are written atomically, folders, and reports.

`kedro run --only-missing-outputs` skips nodes whose outputs exist. A dataset therefore exists only if its content is
complete and has the checksum with which it was written.
"""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.io import AbstractDataset
from kedro_datasets._typing import ImagePreview, JSONPreview, TablePreview

from ktpfl_pipeline.core.errors import InputError, used_up
from ktpfl_pipeline.core.machine.files import PARTIAL, check, content_of, is_whole, replacing, sums
from ktpfl_pipeline.reports.style import BRIEF, MARKDOWN, PAGE, REMAKE, RESULTS, check_kinds

SUMS = "SHA256SUMS"
"""The file with the checksums of a report's files."""


class _Place(AbstractDataset[Any, Any]):
    """Base of all datasets: a file or folder of the project."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Store the path, relative to the project. kedro-viz reads `metadata`, and Kedro ignores it."""
        self.place = Path(filepath)
        self.metadata = metadata

    def save(self, data: Any) -> None:
        raise NotImplementedError(f"a {type(self).__name__} is an input: it cannot be saved")

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.place)}


class _WholeFile(_Place):
    """Base of datasets in a file that is written atomically and has a checksum.

    Subclasses define the format: `_write` writes the data to a path, and `_read` reads the data from a path. The
    messages for a missing and for a damaged file name the command that makes the file (`made`, `again`).
    """

    again = "give the same command again, which takes finished runs from their checkpoints"
    made = "run the whole pipeline first, or the box that writes it"

    def load(self) -> Any:
        """Return the content of the file. Raises InputError if the file is missing or damaged."""
        if not self.place.exists():
            raise InputError(f"{self.place} is not there: {self.made}.")
        try:
            return self._read(self.place)
        except Exception as error:  # damaged bytes can cause any error in a reader
            if used_up(error):
                raise  # memory is used up, and the file may be complete
            reason = str(error).partition("\n")[0]
            raise InputError(f"{self.place} cannot be read ({reason}): delete it and {self.again}.") from error

    def save(self, data: Any) -> None:
        with replacing(self.place, summed=True) as partial:
            self._write(data, partial)

    def _read(self, place: Path) -> Any:
        return content_of(place).decode()

    def _write(self, data: Any, place: Path) -> None:
        place.write_text(data, encoding="utf-8")

    def _exists(self) -> bool:
        return is_whole(self.place)


class WholeTextDataset(_WholeFile):
    """The text that a tuning writes. If the file is missing, the text is empty."""

    again = "tune again"

    def load(self) -> str:
        return super().load() if self.place.exists() else ""


class JSONDataset(_WholeFile):
    """Plain values, stored as JSON."""

    def preview(self) -> JSONPreview:
        return JSONPreview(self.place.read_text(encoding="utf-8"))

    def _read(self, place: Path) -> Any:
        return json.loads(super()._read(place))

    def _write(self, data: Any, place: Path) -> None:
        super()._write(json.dumps(data, indent=2), place)


class ResultDataset(JSONDataset):
    """The `MethodResult` of one method, stored as JSON.

    A process that has saved a result loads this result and not the file. Another process may run the same experiment
    with other settings and replace the file between saving and loading.
    """

    _saved: Any = None

    def load(self) -> Any:
        """Return the result that this process saved, or the result in the file if this process saved none."""
        return super().load() if self._saved is None else self._saved

    def save(self, data: Any) -> None:
        super().save(data)
        self._saved = data

    def _read(self, place: Path) -> Any:
        from ktpfl_pipeline.analysis.results import MethodResult

        content = super()._read(place)
        try:
            return MethodResult.from_dict(content)
        except ValueError as error:
            raise ValueError(f"it does not read as the result of a method: {error}") from error

    def _write(self, data: Any, place: Path) -> None:
        super()._write(data.to_dict(), place)


class CSVDataset(_WholeFile):
    """A pandas table, stored as CSV without its index."""

    def preview(self) -> TablePreview:
        """Return the first rows as kedro-viz shows them."""
        return TablePreview(self.load().head().to_dict(orient="split"))

    def _read(self, place: Path) -> Any:
        import pandas as pd

        return pd.read_csv(io.StringIO(super()._read(place)))

    def _write(self, data: Any, place: Path) -> None:
        from ktpfl_pipeline.analysis.frames import to_csv

        super()._write(to_csv(data), place)


class FederationDataset(_WholeFile):
    """The `FederatedData` of an experiment: the samples, stored once, and the indices of every seed."""

    again = "run the box that writes it again, with --namespaces=data"
    made = "run the whole pipeline, or first the box that writes it, with --namespaces=data"

    def _read(self, place: Path) -> Any:
        import torch

        from ktpfl_pipeline.data.federated import FederatedData

        check(place)
        return FederatedData.from_plain(torch.load(place, weights_only=True, mmap=True))

    def _write(self, data: Any, place: Path) -> None:
        import torch

        with place.open("wb") as file:  # with a path, torch would not report a full disk
            torch.save(data.plain(), file)


class EvidenceDataset(_WholeFile):
    """The `Evidence` of the paper's tables, see `analysis.evidence`."""

    def _read(self, place: Path) -> Any:
        from ktpfl_pipeline.analysis import evidence

        return evidence.load(place)

    def _write(self, data: Any, place: Path) -> None:
        from ktpfl_pipeline.analysis import evidence

        evidence.save(data, place)


class FolderDataset(_Place):
    """A folder: loading returns its path, and nodes write into the folder."""

    def load(self) -> Path:
        """Return the folder's path. A missing folder is created."""
        self.place.mkdir(parents=True, exist_ok=True)
        return self.place


class ComparisonsDataset(_Place):
    """The ``comparison.json`` of each report, by the report's folder.

    Kedro's PartitionedDataset rejects an empty folder. This dataset returns an empty dictionary, so that the node can
    tell the user what to do.
    """

    def load(self) -> dict[str, Any]:
        """Return the content of every ``comparison.json``, the oldest first, except in half-written reports.

        Raises InputError if a file cannot be read or is not JSON.
        """
        found = {}
        for file in sorted(self.place.glob(f"**/{RESULTS}"), key=lambda file: (file.stat().st_mtime_ns, file)):
            if file.parent.suffix == PARTIAL:
                continue
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise InputError(f"{file} cannot be read ({error}): {REMAKE}") from error
            found[file.parent.relative_to(self.place).as_posix()] = content
        return found


class ReportDataset(_Place):
    """The folder of a pipeline's reports. A report has an HTML page, Markdown, LaTeX, CSV, and the figures as SVG.

    A report that names a folder has a separate folder below this one, so that a report on other runs does not replace
    it. Loading returns the report that was saved last.
    """

    _shown = ""  # the last report of this process as text, as wide as its terminal
    _saved: Path | None = None  # the folder of the last report of this process
    failed = ""  #: what could not be run for the report that this process saved last, in a sentence

    def __init__(self, *, figures: Sequence[str] = (), columns: Sequence[str] = (), **place: Any) -> None:
        """Store the path, the file formats of figures in addition to SVG, and the columns of LaTeX tables."""
        super().__init__(**place)
        check_kinds(figures)
        self.figures, self.columns = figures, columns

    @property
    def made(self) -> bool:
        return bool(self._shown)

    @property
    def page(self) -> Path:
        """The page of the report that this process saved last, or the newest page if this process saved no report.

        If there is no page, this is the path of the page of a report without a folder.
        """
        if self._saved is not None:
            return self._saved / PAGE
        pages = [page for page in self.place.glob(f"**/{PAGE}") if page.parent.suffix != PARTIAL]
        return max(pages, key=lambda page: page.stat().st_mtime_ns, default=self.place / PAGE)

    def load(self) -> str:
        return self.page.with_name(MARKDOWN).read_text(encoding="utf-8")

    def save(self, data: Any) -> None:
        """Write a `Report` next to the old report of the same folder, then replace the old report."""
        with replacing(self.place / data.folder) as partial:
            data.write(partial, self.figures, self.columns)
            (partial / SUMS).write_text(_report_sums(partial), encoding="utf-8")
        self._shown, self._saved, self.failed = data.console, self.place / data.folder, data.failed

    def console(self) -> str:
        """Return the comparison table as plain text for a terminal."""
        return self._shown or self.page.with_name(BRIEF).read_text(encoding="utf-8")

    def preview(self) -> ImagePreview:
        """Return the report's first figure as PNG in base64, because kedro-viz would read an HTML page as Markdown."""
        from ktpfl_pipeline.reports.report import PREVIEW  # it imports matplotlib

        return ImagePreview(base64.b64encode((self.page.parent / "figures" / PREVIEW).read_bytes()).decode())

    def _exists(self) -> bool:
        place = self.page.parent
        try:
            return self.page.is_file() and (place / SUMS).read_text(encoding="utf-8") == _report_sums(place)
        except (OSError, UnicodeDecodeError):
            return False


def _report_sums(place: Path) -> str:
    """Return the checksums of a report's files. Reports in folders below are not included."""
    files = [*place.glob("*"), *place.glob("figures/*"), *place.glob("tables/*")]
    return sums(place, (file for file in files if file.is_file() and file.name != SUMS))
