"""Tracking of runs: the folder of checkpoints, and the only interface to MLflow.

The engine does not depend on this package; it reports to an observer. Runs work without a tracking store too.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from ktpfl_pipeline.core.errors import masked
from ktpfl_pipeline.core.validation import parse
from ktpfl_pipeline.tracking.mlflow import MlflowTracker, round_metrics
from ktpfl_pipeline.tracking.store import SQLITE, URI
from ktpfl_pipeline.tracking.tracker import PARENT, Dataset, Ending, Entry, KeptModel, TrackedRun, Tracker

__all__ = [
    "PARENT",
    "Dataset",
    "Ending",
    "Entry",
    "KeptModel",
    "MlflowTracker",
    "TrackedRun",
    "Tracker",
    "round_metrics",
]

logger = logging.getLogger(__name__)
DEFAULT_STORE = f"{SQLITE}mlflow.db"

_tracker: ContextVar[Tracker | None] = ContextVar("tracker", default=None)


def current() -> Tracker:
    """Return the tracker of this process. Before `configure` is called, it is a tracker that does nothing."""
    return _tracker.get() or Tracker()


@contextmanager
def without_store(checkpoints: Path | None, models: str = "first") -> Iterator[None]:
    """Track nothing inside this context; checkpoints are kept in the folder, if there is one. See `Tracker`."""
    before = _tracker.set(Tracker(checkpoints, models))
    try:
        yield
    finally:
        _tracker.reset(before)


@dataclass(frozen=True)
class Tracking:
    """The settings of tracking; conf/base/tracking.yml documents them."""

    enabled: bool = True
    store: Annotated[str, MinLen(1)] | None = None
    artifacts: Annotated[str, MinLen(1)] = "mlruns"
    checkpoints: Annotated[str, MinLen(1)] = "data/06_models"
    models: Literal["first", "all", "none"] = "first"


def configure(settings: Mapping[str, Any], project: Path) -> None:
    """Set the tracker of this process from the content of tracking.yml. Relative paths start at `project`."""
    read = parse(Tracking, settings, "tracking")
    checkpoints = project / read.checkpoints
    if not read.enabled:
        _tracker.set(Tracker(checkpoints, read.models))
        return
    store = _store(read.store)
    if store.startswith(SQLITE) and not store.startswith(SQLITE + "/"):
        store = f"{SQLITE}{project / store.removeprefix(SQLITE)}"
    _tracker.set(MlflowTracker(store, project / read.artifacts, checkpoints, read.models))


def _store(configured: str | None) -> str:
    """Return the address of the store. Log a warning if the environment variable and the configuration differ."""
    given = os.environ.get(URI, "").strip()
    if configured is None:
        return given or DEFAULT_STORE
    if given and given != configured:
        logger.warning(
            "%s is %s and is not used: `store` in tracking.yml is %s. Set `store: null` to use the variable.",
            *(URI, masked(given), masked(configured)),
        )
    return configured
