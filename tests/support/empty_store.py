"""An empty MLflow store, made once because its migrations take seven seconds; and tests without a tracker."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the store. The processes of pytest-xdist share it: the first makes it, and the others wait."""
    base = tmp_path_factory.getbasetemp()
    file = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "empty_store.db"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            forked.result(_make, file)
    return file


def _make(file: Path) -> None:
    """Make the store in a separate process, so that no process keeps it open."""
    from ktpfl_pipeline.tracking import MlflowTracker

    MlflowTracker(f"sqlite:///{file}", file.parent).experiments()


@pytest.fixture
def no_tracker() -> Iterator[None]:
    """Start the test without a tracker, and restore the earlier tracker afterwards."""
    from ktpfl_pipeline import tracking

    token = tracking._tracker.set(None)
    yield
    tracking._tracker.reset(token)
