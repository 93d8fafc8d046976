"""What runs leave behind while they go: checkpoints, and the one door to MLflow.

The engine knows nothing of this; it reports to an observer. Without a tracking store everything still runs.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ktpfl_pipeline.core.errors import InputError
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

_tracker: ContextVar[Tracker | None] = ContextVar("tracker", default=None)


def current() -> Tracker:
    """Return the tracker of this process: one that does nothing, until `configure` was called."""
    return _tracker.get() or Tracker()


def configure(settings: Mapping[str, Any], project: Path) -> None:
    """Take the tracker from conf/base/tracking.yml.

    Args:
        settings: ``enabled``, ``store`` (an MLflow URI; a relative SQLite path is taken from the project),
            ``artifacts`` and ``checkpoints`` (folders, likewise).
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
        kind, wanted = (bool, "true or false") if name == "enabled" else (str, "a text")
        if not isinstance(value, kind) or value == "":
            raise InputError(f"{name} is {value!r} in conf/base/tracking.yml; it must be {wanted}.")
    checkpoints = project / settings["checkpoints"]
    if not settings["enabled"]:
        _tracker.set(Tracker(checkpoints))
        return
    store = settings["store"]
    if store.startswith(SQLITE) and not store.startswith(SQLITE + "/"):
        store = f"{SQLITE}{project / store.removeprefix(SQLITE)}"
    _tracker.set(MlflowTracker(store, project / settings["artifacts"], checkpoints))
