"""All datasets of the catalog that kedro-datasets does not have: files that are always whole, folders, reports.

`kedro run --only-missing-outputs` takes for done what exists, so a file exists only if it is as it was written.
"""

import io
import json
import shutil
from pathlib import Path
from typing import Any

from kedro.io import AbstractDataset
from kedro_datasets._typing import HTMLPreview
from kedro_datasets.json.json_dataset import JSONDataset as PlainJSONDataset
from kedro_datasets.pandas.csv_dataset import CSVDataset as PlainCSVDataset
from kedro_datasets.plotly.json_dataset import JSONDataset as PlainFigureDataset

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.pipelines.whole_files import PARTIAL, all_or_nothing, content_of, is_whole, put, put_folder, sums

SUMS = "SHA256SUMS"
"""The file with the checksums of a report's files."""


class _Whole:
    """What makes a dataset of one file, as kedro-datasets has them, write it whole and know whether it is."""

    _filepath: Any
    _load_args: Any

    def load(self) -> Any:
        """Return what is in the file.

        Raises:
            InputError: if it cannot be read, or is not as it was written.
        """
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


class ResultDataset(JSONDataset):
    """The `MethodResult` of one method, in a JSON file."""

    def save(self, data: Any) -> None:
        """Write the result in plain values."""
        super().save(data.to_dict())

    def _parsed(self, content: bytes) -> Any:
        from ktpfl_pipeline.analysis.results import MethodResult

        try:
            return MethodResult.from_dict(super()._parsed(content))
        except ValueError as error:
            raise ValueError(f"it does not read as the result of a method: {error}") from error


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


class _Place(AbstractDataset[Any, Any]):
    """A file or folder of the project."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the place.

        Args:
            filepath: the file or folder, relative to the project.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.place = Path(filepath)
        self.metadata = metadata

    def save(self, data: Any) -> None:
        """Raise an error: a dataset that is an input is written by somebody else."""
        raise NotImplementedError(f"a {type(self).__name__} is an input: it cannot be saved")

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.place)}


class WholeTextDataset(_Place):
    """A text file that is replaced whole and need not be there: loading a missing one gives an empty text."""

    def load(self) -> str:
        """Return the text.

        Raises:
            InputError: if it cannot be read, or is not as it was written.
        """
        try:
            return content_of(self.place).decode() if self.place.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(f"{self.place} cannot be read ({error}): delete it and tune again.") from error

    def save(self, data: str) -> None:
        """Write the text beside the old one, then put it in its place."""
        partial = self.place.with_name(self.place.name + PARTIAL)
        with all_or_nothing(self.place, partial):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(data, encoding="utf-8")
            put(partial, self.place)

    def _exists(self) -> bool:
        return is_whole(self.place)


class FolderDataset(_Place):
    """A folder to work in: whoever is given its path writes into it."""

    def load(self) -> Path:
        """Return the folder's path, having made it where it was missing."""
        self.place.mkdir(parents=True, exist_ok=True)
        return self.place


class ComparisonsDataset(_Place):
    """What comparisons left beside their reports, by the report's folder.

    Kedro's PartitionedDataset would refuse an empty folder before a node could say what to do.
    """

    def load(self) -> dict[str, Any]:
        """Return the content of every ``comparison.json``, those of half-written reports left out.

        Raises:
            InputError: if one of them is no JSON.
        """
        found = {}
        for file in sorted(self.place.glob("**/comparison.json")):
            if file.parent.suffix == PARTIAL:
                continue
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise InputError(
                    f"{file} cannot be read ({error}): delete its folder, or run its comparison again."
                ) from error
            found[file.parent.relative_to(self.place).as_posix()] = content
        return found


class ReportDataset(_Place):
    """The folder of reports: a page that opens without a server, Markdown, LaTeX, CSV, the figures as PNG and SVG.

    A report that names a variant has a folder of its own below this one. What is read is the report that was saved
    last.
    """

    @property
    def page(self) -> Path:
        """The page of the report that was saved last; where there is none, that of a report without a variant."""
        pages = [page for page in self.place.glob("**/report.html") if page.parent.suffix != PARTIAL]
        return max(pages, key=lambda page: page.stat().st_mtime_ns, default=self.place / "report.html")

    def load(self) -> str:
        """Return the report as Markdown."""
        return self.page.with_name("report.md").read_text(encoding="utf-8")

    def save(self, data: Any) -> None:
        """Write a `Report` beside the old one of the same variant, then put it in its place, whole."""
        place = self.place / data.variant
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
            put_folder(partial, place)

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


def _report_sums(place: Path) -> str:
    """Return the checksums of a report: of its files, and not of other reports in folders below."""
    files = [*place.glob("*"), *place.glob("figures/*")]
    return sums(place, (file for file in files if file.is_file() and file.name != SUMS))
