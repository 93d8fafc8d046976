"""What a tuning tried, and which candidate its validation accuracy chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from ktpfl_pipeline.analysis.kept import Kept


@dataclass(frozen=True)
class Trial(Kept):
    """One candidate.

    Attributes:
        changes: the searched hyperparameters with their values; empty for a method with nothing to choose.
        values: all hyperparameters of the method.
        per_seed: mean over clients of the final validation accuracy, by seed; empty where training diverged.
        run_ids: MLflow's of its runs, by seed; the same.
    """

    changes: dict[str, Any]
    values: dict[str, Any]
    per_seed: list[float]
    run_ids: list[str]

    @property
    def validation(self) -> float | None:
        """Mean over the seeds; None where training diverged."""
        return fmean(self.per_seed) if self.per_seed else None


@dataclass(frozen=True)
class Tuning(Kept):
    """All trials of a tuning.

    Attributes:
        tune: what was searched.
        settings: of the experiment, shared by all trials.
        key: identifies the tuning.
        run_id: of its MLflow run.
        methods: trials by registry name, in order; the first has the configured values.
    """

    tune: dict[str, Any]
    settings: dict[str, Any]
    key: str
    run_id: str
    methods: dict[str, Annotated[list[Trial], Field(min_length=1)]]

    @property
    def seeds(self) -> list[int]:
        """Of every trial."""
        return list(self.tune["seeds"])


def highest(trials: Sequence[Trial]) -> Trial:
    """Return the trial of highest validation accuracy; the first of equals, so the configured values where they are."""
    return max(trials, key=lambda trial: trial.validation or 0.0)
