"""More rounds of a finished run continue it, and equal those of a run that had them from the start."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy
from project_copy import EXPERIMENT, Project, timeless
from toy import same

from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.methods import METHODS, create
from ktpfl_pipeline.runs.more_rounds import as_scheduled, rounds_are_equal

SETTINGS = {"seeds": [0]}


@pytest.fixture(scope="module")
def projects(tracked: Callable[[], Project]) -> tuple[Project, Project]:
    """One with a run of three rounds; one in which a run of two rounds was given a third."""
    at_once, continued = tracked(), tracked()
    at_once.train(**SETTINGS, rounds=3)
    continued.train(**SETTINGS, rounds=2)
    continued.train(**SETTINGS, rounds=3)
    return at_once, continued


def test_the_rounds_are_the_same(projects: tuple[Project, Project]) -> None:
    expected = projects[0].checkpoint("kt_pfl")
    found = max((read(file) for file in projects[1].checkpoints("kt_pfl")), key=lambda each: len(each["history"]))
    assert found["settings"] == expected["settings"]
    assert same(found["state"], expected["state"])
    assert same(found["coefficients"], expected["coefficients"])
    assert same(timeless(found["history"]), timeless(expected["history"])), "with the evaluations of three rounds"


def test_what_was_trained_is_not_trained_again(projects: tuple[Project, Project]) -> None:
    shorter, longer = sorted((read(file)["history"] for file in projects[1].checkpoints("kt_pfl")), key=len)
    assert [record["seconds"] for record in longer[:2]] == [record["seconds"] for record in shorter]


@pytest.mark.parametrize(
    ("t", "rounds", "points", "measures"),
    [
        (3, 8, [], []),  # it was evaluated only as the last round of the shorter run
        (4, 8, ["adapted_1", "after_transfer"], ["auc"]),
        (4, 14, ["after_transfer"], ["auc"]),  # six evaluations, and models are adapted in the last five
    ],
)
def test_evaluations_are_those_of_the_longer_run(t: int, rounds: int, points: list[str], measures: list[str]) -> None:
    kinds: dict[str, Any] = {"accuracy": ["after_transfer", "adapted_1"], "measures": ["auc", "global_accuracy"]}
    record = {"round": t, "cohort": [0], "loss": {"train": [1.0], "test": [1.0]}}
    record |= {kind: {name: [1.0] for name in names} for kind, names in kinds.items()}
    found = as_scheduled(record, Schedule(rounds, evaluate_every=2 if rounds < 14 else 4, evaluate_last=4))
    assert (sorted(found["accuracy"]), sorted(found["measures"])) == (points, measures)
    assert found["loss"] == ({"train": [1.0], "test": [1.0]} if points else {"train": [1.0]})


def test_both_runs_are_tracked_with_all_of_their_rounds(projects: tuple[Project, Project]) -> None:
    client = projects[1].client()
    runs = projects[1].tracked(EXPERIMENT)
    steps = [[point.step for point in client.get_metric_history(run.info.run_id, "round")] for run in runs]
    assert sorted(steps) == [[1, 2], [1, 2, 3]]
    assert {run.info.status for run in runs} == {"FINISHED"}


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(file, weights_only=True)
    return content


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_follow_the_number_of_rounds_say_so(name: str) -> None:
    kind = METHODS[name].kind
    names = {field.name for field in fields(kind)}
    small = {"common": "linear", "start": 0.1, "end": 1.0}  # FedKD sends as many singular values as these ask for
    method = create(name, {field: value for field, value in small.items() if field in names})
    states = []
    for rounds in (1, 50):
        fed = toy.federation_for(method, clients=2, rounds=rounds)
        states.append(vars(method.round(method.init(fed), list(fed.by_id), 1, fed)[0]))
    assert same(*states) != kind.follows_rounds


@pytest.mark.parametrize(
    ("change", "equal"),
    [
        ({}, True),
        ({"training.schedule.kind": "cosine"}, False),
        ({"training.schedule.kind": "step"}, True),
        ({"distillation.schedule.kind": "cosine"}, False),
        ({"training.privacy": {"epsilon": 1}}, False),
        ({"evaluation.patience": 3}, False),
        ({"evaluation.closing_round": True}, False),
        ({"method": "fedkd"}, False),
        ({"method": "my_package.topk:TopK"}, False),
        ({"keeps_models": False}, False),
    ],
)
def test_where_rounds_differ_a_run_starts_at_its_first_round(change: dict[str, Any], equal: bool) -> None:
    settings = {
        "training.schedule.kind": "constant",
        "distillation.schedule.kind": "constant",
        "training.privacy": None,
        "evaluation.patience": None,
        "evaluation.closing_round": False,
        "method": "kt_pfl",
        "keeps_models": True,
        **change,
    }
    job = SimpleNamespace(method=settings.pop("method"), keeps_models=settings.pop("keeps_models"))
    job.experiment = SimpleNamespace()
    for path, value in settings.items():
        place = job.experiment
        *groups, last = path.split(".")
        for group in groups:
            if not hasattr(place, group):
                setattr(place, group, SimpleNamespace())
            place = getattr(place, group)
        setattr(place, last, value)
    assert rounds_are_equal(job) == equal
