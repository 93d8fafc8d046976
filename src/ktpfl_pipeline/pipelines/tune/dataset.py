"""Where a tuning's choice is kept: a file that is always whole, and that need not be there."""

from pathlib import Path
from typing import Any

from kedro.io import AbstractDataset


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
        return self.file.read_text(encoding="utf-8") if self._exists() else ""

    def save(self, data: str) -> None:
        """Write the text beside the old one, then put it in its place."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(self.file.name + ".partial")
        partial.write_text(data, encoding="utf-8")
        partial.replace(self.file)

    def _exists(self) -> bool:
        return self.file.exists()

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self.file)}
