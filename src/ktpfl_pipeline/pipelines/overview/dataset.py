"""Where the overview reads: PartitionedDataset would refuse an empty folder before a node could say what to do."""

import json
from pathlib import Path
from typing import Any, NoReturn

from kedro.io import AbstractDataset

from ktpfl_pipeline.core.errors import InputError


class ComparisonsDataset(AbstractDataset[Any, dict[str, Any]]):
    """What comparisons left beside their reports, by the report's folder."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the folder.

        Args:
            filepath: the folder of all reports, relative to the project.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.folder = Path(filepath)
        self.metadata = metadata

    def load(self) -> dict[str, Any]:
        """Return the content of every ``comparison.json``, those of half-written reports left out.

        Raises:
            InputError: if one of them is no JSON.
        """
        files = sorted(self.folder.glob("**/comparison.json"))
        return {
            file.parent.relative_to(self.folder).as_posix(): _content(file)
            for file in files
            if file.parent.suffix != ".partial"
        }

    def save(self, data: Any) -> NoReturn:
        """Refuse: a report writes its own."""
        raise NotImplementedError("a ComparisonsDataset is an input: comparison.json is written with each report")

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.folder)}


def _content(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read ({error}): delete its folder, or run its comparison again.") from error
