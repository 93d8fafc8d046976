"""Projects in which tests run pipelines. Tests that only read results share a project."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("ibis") is None:  # Kedro searches for ibis for every dataset in memory, a third of a short run
    sys.modules["ibis"] = None  # type: ignore[assignment]
os.environ.setdefault("KEDRO_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow

from project_copy import Project


@pytest.fixture(scope="module")
def sections() -> tuple[str, ...]:
    """Return the sections of conf/ in the projects of a test file, in addition to the experiment on digits.

    A test file can override this fixture.
    """
    return ()


@pytest.fixture
def untracked(tmp_path: Path, sections: tuple[str, ...]) -> Iterator[Project]:
    """Yield a new project without tracking, and delete it afterwards: the paper's models take 250 MB."""
    yield Project.create(tmp_path / "project", sections=sections)
    shutil.rmtree(tmp_path / "project")


@pytest.fixture(scope="module")
def tracked(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path, sections: tuple[str, ...]
) -> Callable[[], Project]:
    """Return a function that makes new projects with an empty MLflow store."""
    return lambda: Project.create(tmp_path_factory.mktemp("tracked") / "project", empty_store, sections)
