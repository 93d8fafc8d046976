"""Which methods a comparison runs: all, some by name, and the user's own by a dotted path."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiment import changed
from project_copy import EXPERIMENT, Project

from ktpfl_pipeline import pipeline_registry
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.methods import compared as registered
from ktpfl_pipeline.pipelines import compared

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


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_found", compared.ContextVar("experiments", default=None))


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The dotted path of a method outside the package that can be imported."""
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "my_method.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return PATH


@pytest.fixture
def project(untracked: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a method of its own."""
    package = untracked.folder / "src" / "own_package"
    package.mkdir()
    (package / "my_method.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(package.parent)
    return untracked


def configure(project: Project, methods: dict[str, Any]) -> None:
    """Give methods to the experiment under conf/test."""
    file = project.folder / "conf" / "test" / "parameters_hetero.yml"
    sections = yaml.safe_load(file.read_text())
    sections[EXPERIMENT] |= {"methods": methods, "compare": PATH, "seeds": [0], "rounds": 1, "theorem_samples": 0}
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


def comparison(experiment: dict[str, Any], one_architecture: bool = False) -> list[str]:
    """Return what the comparison of an experiment with these settings runs."""
    compared.remember({"mine": parsing.parse("mine", experiment)})
    return list(compared.methods_of("mine", one_architecture))


def test_without_settings_all_of_the_registry() -> None:
    """As for `kedro registry list`."""
    assert compared.methods_of("mine", one_architecture=True) == registered(one_architecture=True)
    pipeline = pipeline_registry.register_pipelines()[f"compare_{EXPERIMENT}"]
    assert {node.namespace for node in pipeline.nodes} == {
        "data",
        "methods.report",
        *(f"methods.{method}" for method in registered(one_architecture=False)),
    }


def test_only_its_own_experiment_runs_a_method(own_path: str) -> None:
    assert comparison(changed("methods", {"local": {}, own_path: {}}))[-1] == own_path
    assert own_path not in compared.methods_of("other", one_architecture=False)


@pytest.mark.parametrize(
    ("asked", "methods"),
    [
        ("fedmd", ["kt_pfl", "fedmd", "local"]),
        (["ds_fl", "fedmd"], ["kt_pfl", "ds_fl", "fedmd", "local"]),
        ("local+kt_pfl", ["kt_pfl", "local"]),
        ("all+kt_pfl_authors", [*registered(one_architecture=False), "kt_pfl_authors"]),
    ],
)
def test_kt_pfl_and_training_alone_are_always_compared(asked: Any, methods: list[str]) -> None:
    assert comparison(changed("compare", asked)) == methods


def test_a_path_is_compared_like_a_name(own_path: str) -> None:
    assert comparison(changed("compare", ["fedmd", own_path])) == ["kt_pfl", "fedmd", own_path, "local"]


def test_kt_pfl_of_one_architecture() -> None:
    assert comparison(changed("compare", "fedavg"), one_architecture=True) == ["kt_pfl_params", "fedavg", "local"]
