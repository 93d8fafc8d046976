"""What runs leave behind while they go: checkpoints, and the one door to MLflow.

The engine knows nothing of this; it reports to an observer. Without a tracking store everything still runs.
"""

import logging
import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from ktpfl_pipeline.core.errors import masked
from ktpfl_pipeline.core.validation import parse
from ktpfl_pipeline.tracking.mlflow import MlflowTracker, round_metrics
from ktpfl_pipeline.tracking.store import SQLITE, URI
from ktpfl_pipeline.tracking.tracker import PARENT, Dataset, Ending, Entry, TrackedRun, Tracker
from ktpfl_pipeline.tracking.view import ADDRESS as VIEW

__all__ = ["PARENT", "VIEW", "Dataset", "Ending", "Entry", "MlflowTracker", "TrackedRun", "Tracker", "round_metrics"]

logger = logging.getLogger(__name__)
DEFAULT_STORE = f"{SQLITE}mlflow.db"

_tracker: ContextVar[Tracker | None] = ContextVar("tracker", default=None)


def current() -> Tracker:
    """Return the tracker of this process; it does nothing until `configure` is called."""
    return _tracker.get() or Tracker()


@dataclass(frozen=True)
class Tracking:
    """The settings of conf/base/tracking.yml, which describes them."""

    enabled: bool = True
    store: Annotated[str, MinLen(1)] | None = None
    artifacts: Annotated[str, MinLen(1)] = "mlruns"
    checkpoints: Annotated[str, MinLen(1)] = "data/06_models"


def configure(settings: Mapping[str, Any], project: Path) -> None:
    """Make the tracker of this process from the content of tracking.yml and the project's folder."""
    read = parse(Tracking, settings, "tracking")
    checkpoints = project / read.checkpoints
    if not read.enabled:
        _tracker.set(Tracker(checkpoints))
        return
    store = _store(read.store)
    if store.startswith(SQLITE) and not store.startswith(SQLITE + "/"):
        store = f"{SQLITE}{project / store.removeprefix(SQLITE)}"
    _tracker.set(MlflowTracker(store, project / read.artifacts, checkpoints))


def _store(configured: str | None) -> str:
    """Return the store's address; say so where the environment names another one than the configuration does."""
    given = os.environ.get(URI, "").strip()
    if configured is None:
        return given or DEFAULT_STORE
    if given and given != configured:
        logger.warning(
            "%s is %s and is not used: `store` in tracking.yml is %s. Set `store: null` to use the variable.",
            *(URI, masked(given), masked(configured)),
        )
    return configured
