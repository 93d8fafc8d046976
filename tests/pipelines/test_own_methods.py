"""A method of the user's own, in the project's src folder and named in conf/, runs beside the others."""

import json
from typing import Any

import pytest
import yaml
from project_copy import EXPERIMENT, Project

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.pipelines import own_methods

PATH = "own_package.my_method:Nearest"
SLUG = "own_package_my_method_Nearest"
SOURCE = '''"""A method outside the package."""

from dataclasses import dataclass

from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.method import Personal, RoundReport, PersonalState
from ktpfl_pipeline.core.weights import select


@dataclass(frozen=True)
class Nearest(Personal):
    """Key idea: the model that was trained last is good enough for everybody in the cohort."""

    title = "Nearest"
    share: float = 1.0

    def round(self, state, cohort, t, fed):
        trained = fed.train(select(state.models, cohort), t)
        return PersonalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, Traffic()))
'''


@pytest.fixture
def project(untracked: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a method of its own beside two of ours."""
    package = untracked.folder / "src" / "own_package"
    package.mkdir()
    (package / "my_method.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(pipeline_registry, "compared", lambda one_architecture: ("kt_pfl", "local"))
    monkeypatch.setattr(own_methods, "_found", own_methods.ContextVar("own_methods", default=None))
    return untracked


def configure(project: Project, methods: dict[str, Any]) -> None:
    """Give methods to the experiment under conf/test."""
    file = project.folder / "conf" / "test" / "parameters_hetero.yml"
    sections = yaml.safe_load(file.read_text())
    sections[EXPERIMENT] |= {"methods": methods, "seeds": [0], "rounds": 1, "theorem_samples": 0}
    file.write_text(yaml.safe_dump(sections))


def test_it_joins_the_comparison_and_its_report(project: Project) -> None:
    configure(project, {PATH: {"share": 0.5}})
    project.run(f"compare_{EXPERIMENT}")
    results = project.folder / "data" / "07_model_output" / EXPERIMENT
    assert {folder.name for folder in results.iterdir()} == {"kt_pfl", "local", SLUG}
    result = json.loads((results / SLUG / "result.json").read_text())
    assert (result["method"], result["title"], result["hyperparameters"]) == (PATH, "Nearest", {"share": 0.5})
    assert list((project.folder / "data" / "06_models" / EXPERIMENT / SLUG).glob("seed-0-*/checkpoint.pt"))
    (report,) = (project.folder / "data" / "08_reporting" / f"compare_{EXPERIMENT}").glob("*/report.md")
    assert "Nearest" in report.read_text()


def test_without_settings_there_are_none(project: Project) -> None:
    """As for `kedro registry list`."""
    names = {node.namespace for node in pipeline_registry.register_pipelines()[f"compare_{EXPERIMENT}"].nodes}
    assert names == {"data", "kt_pfl", "local", "report"}


def test_only_its_own_experiment_runs_it() -> None:
    own_methods.remember({"mine": {"methods": {"local": {}, PATH: {}}}, "other": {"methods": {"local": {}}}})
    assert (own_methods.own_methods("mine"), own_methods.own_methods("other")) == ((PATH,), ())
