"""Which methods a comparison runs: all, some by name, and the user's own by a dotted path."""

import json
from typing import Any

import pytest
import yaml
from click import ClickException
from experiment import EXPERIMENT as EXPERIMENT_SECTION
from experiment import ONE_ARCHITECTURE, changed
from project_copy import EXPERIMENT, Project

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.methods import compared as registered
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.pipeline_registry import methods_of

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
    sections[EXPERIMENT] |= {"methods": methods, "compare": PATH, "seeds": [0], "rounds": 1}
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


def test_a_method_that_diverges_leaves_the_others(untracked: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"compare_{EXPERIMENT}"
    settings: dict[str, Any] = {"compare": ["local"], "seeds": [0, 1], "rounds": 1}

    def diverge(*_: Any) -> None:
        raise DivergedError({3: "its train loss is nan"})

    with monkeypatch.context() as patch:
        patch.setattr(KTpFL, "round", diverge)
        with pytest.raises(
            ClickException,
            match=r"^KT-pFL of hetero_digits has no result, so there is no report\. Client 3 diverged in round 1 "
            r"\(its train loss is nan\); .* Another remedy is .* A changed setting of all methods .*\.$",
        ):
            untracked.run(name, **settings)
    assert not untracked.checkpoints("kt_pfl")
    trained = {file: file.read_bytes() for seed in (0, 1) for file in untracked.checkpoints("local", seed)}
    assert len(trained) == 2
    untracked.run(name, **settings)
    assert {file: file.read_bytes() for file in trained} == trained, "nothing is trained again"
    assert len(untracked.finished("kt_pfl")) == len(untracked.finished("local")) == 2


def comparison(experiment: dict[str, Any], exchange: str = "predictions") -> tuple[str, ...]:
    """Return what the comparison of an experiment with these settings runs."""
    return methods_of(parsing.form("mine", {**experiment, "exchange": exchange}))


@pytest.mark.parametrize("exchange", ["predictions", "parameters"])
def test_without_settings_all_of_the_registry_that_exchange_the_same(exchange: str) -> None:
    assert comparison(ONE_ARCHITECTURE, exchange) == registered(one_architecture=exchange == "parameters")


def test_a_method_of_the_experiments_own_is_one_of_all() -> None:
    assert comparison(changed("methods", {"local": {}, PATH: {}}))[-1] == PATH


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
    assert list(comparison(changed("compare", asked))) == methods


def test_a_path_is_compared_like_a_name() -> None:
    assert comparison(changed("compare", ["fedmd", PATH])) == ("kt_pfl", "fedmd", PATH, "local")


def test_kt_pfl_of_one_architecture() -> None:
    assert comparison(changed("compare", "fedavg"), "parameters") == ("kt_pfl_params", "fedavg", "local")


class TestAllBut:
    def methods(self, *compare: str) -> tuple[str, ...]:
        return methods_of(parsing.parse("mine", {**EXPERIMENT_SECTION, "compare": list(compare)}))

    def test_leaves_methods_out(self) -> None:
        every, fewer = self.methods("all"), self.methods("all", "-fedkd", "-fedmd")
        assert {*every} - {*fewer} == {"fedkd", "fedmd"}
        assert list(fewer) == [each for each in every if each in fewer]

    @pytest.mark.parametrize(
        ("compare", "told"),
        [
            (["fedmd", "-fedkd"], r"leaves out fedkd and does not have all: write \[all, -fedkd\]"),
            (["all", "-local"], "leaves out local, which every comparison has"),
            (["all", "fedkd", "-fedkd"], "both names and leaves out fedkd"),
            (["all", "-fedkt"], "fedkd"),
        ],
    )
    def test_what_cannot_be_left_out(self, compare: list[str], told: str) -> None:
        with pytest.raises(InputError, match=told):
            parsing.parse("mine", {**EXPERIMENT_SECTION, "compare": compare})
