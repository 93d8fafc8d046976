"""Projects to run in, shared as far as their tests only look at them."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("ibis") is None:  # Kedro looks for it for every dataset in memory, and that is a third of a short run
    sys.modules["ibis"] = None  # type: ignore[assignment]
os.environ.setdefault("KEDRO_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow

from project_copy import Project


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    """What the projects of a test file have of conf/ beside one experiment on digits; a file may have its own."""
    return ()


@pytest.fixture
def untracked(tmp_path: Path, sections: tuple[str, ...]) -> Iterator[Project]:
    """A fresh project that tracks nothing. It goes afterwards: the paper's models fill a quarter of a gigabyte."""
    yield Project.create(tmp_path / "project", sections=sections)
    shutil.rmtree(tmp_path / "project")


@pytest.fixture(scope="module")
def tracked(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, sections: tuple[str, ...]
) -> Callable[[], Project]:
    """Make fresh projects with an empty MLflow store."""
    return lambda: Project.create(tmp_path_factory.mktemp("tracked") / "project", empty_store, sections)
