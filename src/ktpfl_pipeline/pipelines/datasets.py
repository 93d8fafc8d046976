"""All datasets of the catalog: files that are always whole, folders, reports.

`kedro run --only-missing-outputs` takes for done what exists, so a file exists only if it is as it was written.
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
    """A file or folder of the project."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the place, relative to the project; Kedro ignores `metadata`, and kedro-viz reads it."""
        self.place = Path(filepath)
        self.metadata = metadata

    def save(self, data: Any) -> None:
        """Raise an error: a dataset that is an input is not written by this project."""
        raise NotImplementedError(f"a {type(self).__name__} is an input: it cannot be saved")

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.place)}


class _WholeFile(_Place):
    """A file that is written whole and knows whether it is; `_write` writes the data to a place, `_read` reads them.

    Messages say how to have it made where it is missing, and how to have it made again where it cannot be read.
    """

    again = "give the same command again, which takes finished runs from their checkpoints"
    made = "run the whole pipeline first, or the box that writes it"

    def load(self) -> Any:
        """Return what is in the file; an `InputError` says that it is not there, or not as it was written."""
        if not self.place.exists():
            raise InputError(f"{self.place} is not there: {self.made}.")
        try:
            return self._read(self.place)
        except Exception as error:  # bytes of any kind make readers stumble in any way
            if used_up(error):
                raise  # the file may be whole
            reason = str(error).partition("\n")[0]
            raise InputError(f"{self.place} cannot be read ({reason}): delete it and {self.again}.") from error

    def save(self, data: Any) -> None:
        """Write the file next to the old one, then put it in its place."""
        with replacing(self.place, summed=True) as partial:
            self._write(data, partial)

    def _read(self, place: Path) -> Any:
        return content_of(place).decode()

    def _write(self, data: Any, place: Path) -> None:
        place.write_text(data, encoding="utf-8")

    def _exists(self) -> bool:
        return is_whole(self.place)


class WholeTextDataset(_WholeFile):
    """A text of a tuning, which need not be there: loading a missing one gives an empty text."""

    again = "tune again"

    def load(self) -> str:
        """Return the text."""
        return super().load() if self.place.exists() else ""


class JSONDataset(_WholeFile):
    """Plain values, as JSON."""

    def preview(self) -> JSONPreview:
        """Return the values as kedro-viz shows them."""
        return JSONPreview(self.place.read_text(encoding="utf-8"))

    def _read(self, place: Path) -> Any:
        return json.loads(super()._read(place))

    def _write(self, data: Any, place: Path) -> None:
        super()._write(json.dumps(data, indent=2), place)


class ResultDataset(JSONDataset):
    """The `MethodResult` of one method, as JSON.

    A process that saved one reads that one: another process may run the same experiment with other settings, and
    replace the file in between.
    """

    _saved: Any = None

    def load(self) -> Any:
        """Return the result that this process saved; without one, that of the file."""
        return super().load() if self._saved is None else self._saved

    def save(self, data: Any) -> None:
        """Write the file, and keep the result."""
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
    """A pandas table, without its index, as CSV."""

    def preview(self) -> TablePreview:
        """Return the first rows as kedro-viz shows them."""
        return TablePreview(self.load().head().to_dict(orient="split"))

    def _read(self, place: Path) -> Any:
        import pandas as pd

        return pd.read_csv(io.StringIO(super()._read(place)))

    def _write(self, data: Any, place: Path) -> None:
        super()._write(data.to_csv(index=False), place)


class FederationDataset(_WholeFile):
    """The `FederatedData` of an experiment: its samples once, and the indices of every seed."""

    again = "run the box that writes it again, with --namespaces=data"
    made = "run the whole pipeline, or first the box that writes it, with --namespaces=data"

    def _read(self, place: Path) -> Any:
        import torch

        from ktpfl_pipeline.data.federated import FederatedData

        check(place)
        return FederatedData.from_plain(torch.load(place, weights_only=True, mmap=True))

    def _write(self, data: Any, place: Path) -> None:
        import torch

        with place.open("wb") as file:  # torch, given a path, would not say that the disk is full
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
    """A folder to work in: whoever is given its path writes into it."""

    def load(self) -> Path:
        """Return the folder's path, having made it where it was missing."""
        self.place.mkdir(parents=True, exist_ok=True)
        return self.place


class ComparisonsDataset(_Place):
    """The ``comparison.json`` of each report, by the report's folder.

    Kedro's PartitionedDataset would refuse an empty folder before a node could say what to do.
    """

    def load(self) -> dict[str, Any]:
        """Return the content of every ``comparison.json``, except in half-written reports; each must be JSON."""
        found = {}
        for file in sorted(self.place.glob(f"**/{RESULTS}")):
            if file.parent.suffix == PARTIAL:
                continue
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise InputError(f"{file} cannot be read ({error}): {REMAKE}") from error
            found[file.parent.relative_to(self.place).as_posix()] = content
        return found


class ReportDataset(_Place):
    """The folder of reports: a page that opens without a server, Markdown, LaTeX, CSV, the figures as SVG.

    A report that names a variant has a separate folder below this one. Loading returns the report that was saved last.
    """

    _shown = ""  # in this process, as wide as its terminal
    _saved: Path | None = None  # the same
    failed = ""  #: what could not be run for the report that this process saved last, in a sentence

    def __init__(self, *, figures: Sequence[str] = (), **place: Any) -> None:
        """Remember the place, and the kinds of figure files besides SVG: ``png``, ``pdf``."""
        super().__init__(**place)
        check_kinds(figures)
        self.figures = figures

    @property
    def made(self) -> bool:
        """Whether a report was saved in this process."""
        return bool(self._shown)

    @property
    def page(self) -> Path:
        """The page of the report that this process saved last; without one, the newest of all.

        Where there is none, that of a report without a variant.
        """
        if self._saved is not None:
            return self._saved / PAGE
        pages = [page for page in self.place.glob(f"**/{PAGE}") if page.parent.suffix != PARTIAL]
        return max(pages, key=lambda page: page.stat().st_mtime_ns, default=self.place / PAGE)

    def load(self) -> str:
        """Return the report as Markdown."""
        return self.page.with_name(MARKDOWN).read_text(encoding="utf-8")

    def save(self, data: Any) -> None:
        """Write a `Report` next to the old one of the same variant, then put it in its place, whole."""
        with replacing(self.place / data.variant) as partial:
            data.write(partial, self.figures)
            (partial / SUMS).write_text(_report_sums(partial), encoding="utf-8")
        self._shown, self._saved, self.failed = data.console, self.place / data.variant, data.failed

    def console(self) -> str:
        """Return the comparison table as plain text for a terminal."""
        return self._shown or self.page.with_name(BRIEF).read_text(encoding="utf-8")

    def preview(self) -> ImagePreview:
        """Return the report's first figure as kedro-viz shows it, PNG in base64; a page it would read as Markdown."""
        from ktpfl_pipeline.reports.report import PREVIEW  # it imports matplotlib

        return ImagePreview(base64.b64encode((self.page.parent / "figures" / PREVIEW).read_bytes()).decode())

    def _exists(self) -> bool:
        place = self.page.parent
        try:
            return self.page.is_file() and (place / SUMS).read_text(encoding="utf-8") == _report_sums(place)
        except (OSError, UnicodeDecodeError):
            return False


def _report_sums(place: Path) -> str:
    """Return the checksums of a report: of its files, and not of other reports in folders below."""
    files = [*place.glob("*"), *place.glob("figures/*")]
    return sums(place, (file for file in files if file.is_file() and file.name != SUMS))
