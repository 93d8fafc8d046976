"""Runs methods, each in a separate pipeline, in the project in the working directory; see `same_numbers.py`."""

import contextlib
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from kedro.framework.project import configure_project
from kedro.framework.session import KedroSession
from kedro.runner import SequentialRunner

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.methods import METHODS

HOMO = set(list(METHODS)[list(METHODS).index("kt_pfl_params") :])
"""Methods that need one architecture."""

names = sys.argv[1:] or list(METHODS)
experiments = {name: "homo_digits" if name in HOMO else "hetero_digits" for name in names}
experiment_pipeline: Any = None
for home in ("pipelines.graphs", "pipelines.experiment", "pipeline_registry"):  # it differs between versions
    with contextlib.suppress(ImportError, AttributeError):
        experiment_pipeline = experiment_pipeline or import_module(f"ktpfl_pipeline.{home}").experiment_pipeline
pipelines = {name: experiment_pipeline(name, section, [name]) for name, section in experiments.items()}
registry: Any = pipeline_registry
registry.register_pipelines = lambda: pipelines
configure_project("ktpfl_pipeline")
logging.disable(logging.INFO)
for name, section in experiments.items():
    changes: dict[str, Any] = {section: {"seeds": [0], "hyperparameters": "configured"}}
    if name == "fml":  # the default differs between versions
        changes[section]["methods"] = {"fml": {"common": "lenet"}}
    session: Any
    with KedroSession.create(project_path=Path.cwd(), env="test", runtime_params=changes) as session:
        session.run(pipeline_names=[name], runner=SequentialRunner(), to_outputs=[f"{section}/{name}/result"])
