"""What a tracker does, and the one that does nothing."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ktpfl_pipeline.core.metrics import RoundRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARENT = "mlflow.parentRunId"
"""The tag by which MLflow shows a run below another."""


class TrackedRun(Protocol):
    """A run while it goes."""

    run_id: str

    def round(self, record: RoundRecord) -> None:
        """Log one finished round, unless it was logged before."""

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Log what stands at the end.

        Args:
            summary: final numbers by name.
            figures: of matplotlib, by name.
            tables: plain values by name, kept as JSON.
        """


class Untracked:
    """Tracks nothing: what there is without a store."""

    run_id = ""

    def __init__(self, checkpoints: Path | None = None) -> None:
        """Remember the folder of the checkpoints; None keeps none."""
        self.checkpoints = checkpoints

    @contextlib.contextmanager
    def run(
        self, experiment: str, name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> Iterator[TrackedRun]:
        """Yield a run that forgets."""
        yield self

    def log_report(
        self, experiment: str, name: str, key: str, files: Mapping[str, str], figures: "Mapping[str, Figure]"
    ) -> None:
        """Forget the report."""

    def round(self, record: RoundRecord) -> None:
        """Forget the round."""

    def finish(self, summary: Mapping[str, float], figures: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
        """Forget the end."""
