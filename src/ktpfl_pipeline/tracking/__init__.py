"""What runs leave behind while they go: checkpoints, and the one door to MLflow.

The engine knows nothing of this; it reports to an observer. Without a tracking store everything still runs.
"""

import logging
import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ktpfl_pipeline.core.errors import InputError, masked
from ktpfl_pipeline.tracking.mlflow import MlflowTracker, round_metrics
from ktpfl_pipeline.tracking.store import SQLITE
from ktpfl_pipeline.tracking.tracker import PARENT, Dataset, Ending, Entry, TrackedRun, Tracker
from ktpfl_pipeline.tracking.view import ADDRESS as VIEW

__all__ = [
    "PARENT",
    "VIEW",
    "Dataset",
    "Ending",
    "Entry",
    "MlflowTracker",
    "TrackedRun",
    "Tracker",
    "configure",
    "current",
    "round_metrics",
]

logger = logging.getLogger(__name__)
URI = "MLFLOW_TRACKING_URI"
"""The environment variable that names the store where tracking.yml names none."""
DEFAULT_STORE = f"{SQLITE}mlflow.db"

_tracker: ContextVar[Tracker | None] = ContextVar("tracker", default=None)


def current() -> Tracker:
    """Return the tracker of this process: one that does nothing, until `configure` was called."""
    return _tracker.get() or Tracker()


def configure(settings: Mapping[str, Any], project: Path) -> None:
    """Take the tracker from conf/base/tracking.yml.

    Args:
        settings: ``enabled``, ``store`` (an MLflow URI; a relative SQLite path is taken from the project; None takes
            `URI` from the environment, or `DEFAULT_STORE` without it), ``artifacts`` and ``checkpoints`` (folders; a
            relative one is taken from the project).
        project: the project's folder.

    Raises:
        InputError: if a setting is unknown, missing or of another type.
    """
    expected = {"enabled", "store", "artifacts", "checkpoints"}
    if wrong := expected.symmetric_difference(settings):
        raise InputError(
            f"conf/base/tracking.yml must have exactly {', '.join(sorted(expected))}; missing or unknown keys: "
            f"{', '.join(sorted(map(str, wrong)))}."
        )
    for name, value in settings.items():
        if name == "store" and value is None:
            continue
        kind, wanted = (bool, "true or false") if name == "enabled" else (str, "a string")
        if not isinstance(value, kind) or value == "":
            raise InputError(f"{name} is {value!r} in conf/base/tracking.yml; it must be {wanted}.")
    checkpoints = project / settings["checkpoints"]
    if not settings["enabled"]:
        _tracker.set(Tracker(checkpoints))
        return
    store = _store(settings["store"])
    if store.startswith(SQLITE) and not store.startswith(SQLITE + "/"):
        store = f"{SQLITE}{project / store.removeprefix(SQLITE)}"
    _tracker.set(MlflowTracker(store, project / settings["artifacts"], checkpoints))


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
