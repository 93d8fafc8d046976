"""An empty MLflow store, made once since its migrations take seven seconds, and a test's start without a tracker."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the store. Processes of one pytest-xdist share it; the first one makes it, and others wait."""
    base = tmp_path_factory.getbasetemp()
    file = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "empty_store.db"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            forked.result(_make, file)
    return file


def _make(file: Path) -> None:
    """Make it in a process that ends, so that no other one has it open."""
    from ktpfl_pipeline.tracking import MlflowTracker

    MlflowTracker(f"sqlite:///{file}", file.parent).experiments()


@pytest.fixture
def no_tracker() -> Iterator[None]:
    """Begin without a tracker, and bring the one of before back."""
    from ktpfl_pipeline import tracking

    token = tracking._tracker.set(None)
    yield
    tracking._tracker.reset(token)
