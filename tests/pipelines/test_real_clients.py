"""An experiment of conf/ whose clients are real, through Kedro and MLflow; messages go by their bytes, without Flower."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from project_copy import Project
from real_clients import NoLink, check_same, deal_out, in_one_process

from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.flower import experiment as real

NAME = "mine"
METHODS = ("kt_pfl", "fedmd", "local")


@pytest.fixture(scope="module")
def project(tracked: Callable[[], Project]) -> Project:
    """A project with an experiment on two real clients, compared."""
    project = tracked()
    raw = project.folder / "data" / "01_raw"
    files = deal_out(raw, "kt_pfl", ("mlp", "cnn_bn"))
    asked = yaml.safe_load((raw / "federation.yml").read_text())
    given = {name: asked[name] for name in ("clients", "rounds", "public", "training", "distillation")}
    section = {**given, "compare": ["fedmd"], "compute": {"flower": "127.0.0.1:1", "device": "cpu"}}
    project.configure("parameters_mine", **{NAME: {**section, "evaluation": {"adapt_epochs": [0]}}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real, "link_of", lambda experiment: NoLink(files))
        project.run(f"compare_{NAME}")
    return project


def finished(project: Project, method: str) -> dict:
    file = project.folder / "data" / "07_model_output" / NAME / method / "result.json"
    (run,) = json.loads(file.read_text())["runs"]
    return run


def test_it_is_the_run_of_one_process_bit_for_bit(project: Project) -> None:
    here, _ = in_one_process(project.folder / "data" / "01_raw")
    there = finished(project, "kt_pfl")
    assert there["coefficients"] == here.coefficients[-1].tolist()
    for ours, theirs in zip(here.history, there["history"], strict=True):
        assert {p: theirs["accuracy"][p] for p in ours.accuracy} == ours.accuracy
