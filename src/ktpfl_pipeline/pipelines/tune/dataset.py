"""Where a tuning's choice is kept: a file that is always whole, and that need not be there."""

from pathlib import Path
from typing import Any

from kedro.io import AbstractDataset

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.pipelines.datasets import PARTIAL, all_or_nothing, content_of, is_whole, put


class WholeTextDataset(AbstractDataset[str, str]):
    """A text file that is replaced whole; loading it where it is missing gives an empty text."""

    def __init__(self, *, filepath: str, metadata: dict[str, Any] | None = None) -> None:
        """Remember the file.

        Args:
            filepath: the file, relative to the project.
            metadata: anything; Kedro ignores it, kedro-viz reads it.
        """
        self.file = Path(filepath)
        self.metadata = metadata

    def load(self) -> str:
        """Return the text."""
        try:
            return content_of(self.file).decode() if self.file.exists() else ""
        except (OSError, ValueError) as error:
            raise InputError(f"{self.file} cannot be read ({error}): delete it and tune again.") from error

    def save(self, data: str) -> None:
        """Write the text beside the old one, then put it in its place."""
        partial = self.file.with_name(self.file.name + PARTIAL)
        with all_or_nothing(self.file, partial):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(data, encoding="utf-8")
            put(partial, self.file)

    def _exists(self) -> bool:
        return is_whole(self.file)

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.file)}
