"""Fixtures of all tests with Flower: the main suite's fixtures, and projects to run in."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("KEDRO_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the first import of mlflow

from project_copy import Project

pytest_plugins = ["shared", "empty_store"]


@pytest.fixture
def untracked(tmp_path: Path) -> Iterator[Project]:
    """Return a new project without tracking."""
    yield Project.create(tmp_path / "project")
    shutil.rmtree(tmp_path / "project")


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Callable[[], Project]:
    """Return a function that makes new projects with an empty MLflow store."""
    return lambda: Project.create(tmp_path_factory.mktemp("tracked") / "project", empty_store)
