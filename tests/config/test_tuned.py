"""Tuned hyperparameters: a comparison takes all of its methods' values from what was tuned, or none."""

import copy
import json
from dataclasses import asdict
from typing import Any

import pytest
from cases import case
from experiment import ONE_ARCHITECTURE

from ktpfl_pipeline.config import parsing, schema, tuned
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.methods import create

FILE = "data/05_model_input/homo_mine/hyperparameters.json"
CONFIGURED = {"ditto": {"coupling": 0.1}, "local": {}}
SECTION: dict[str, Any] = {
    **ONE_ARCHITECTURE,
    **{"seeds": [0, 1], "rounds": 5, "clients": 5, "hyperparameters": "tuned", "methods": CONFIGURED},
}
EXPERIMENT = parsing.parse("homo_mine", SECTION)


def left(**changes: Any) -> dict[str, Any]:
    """Return what a tuning of the experiment leaves, with seed 100."""
    settings = parsing.parse("homo_mine", {**SECTION, "seeds": [100], "theorem_samples": 0}).shared()
    methods = {
        method: {
            "values": {**asdict(create(method, values)), **({"coupling": 0.7} if values else {})},
            "configured": asdict(create(method, values)),
            "validation": 0.9,
            "configured_validation": None,
            "trials": 2,
            "run_ids": ["abc"],
        }
        for method, values in CONFIGURED.items()
    }
    made = {"experiment": "homo_mine", "seeds": [100], "settings": settings, "key": "k", "run_id": "r"}
    return copy.deepcopy({**made, "methods": methods, **changes})


def resolve(content: Any, run: tuple[str, ...] = ("ditto", "local"), **changes: Any) -> schema.Experiment:
    experiment = parsing.parse("homo_mine", {**SECTION, **changes})
    text = content if isinstance(content, str) else json.dumps(content)
    return tuned.resolve(experiment, text, name="homo_mine", methods=run)


def refusal(content: Any, run: tuple[str, ...] = ("ditto", "local"), **changes: Any) -> str:
    with pytest.raises(InputError) as refused:
        resolve(content, run, **changes)
    return str(refused.value)


def test_configured_values_stay_whatever_was_tuned() -> None:
    configured = parsing.parse("homo_mine", {**SECTION, "hyperparameters": "configured"})
    assert resolve(left(), hyperparameters="configured") == configured
    assert resolve("no JSON", hyperparameters="configured") == configured


def test_tuned_values_of_all_methods() -> None:
    resolved = resolve(left())
    assert resolved.methods == {"ditto": {"coupling": 0.7}, "local": {}}
    assert resolved.settings() == EXPERIMENT.settings()
    assert resolved.settings() != parsing.parse("homo_mine", {**SECTION, "hyperparameters": "configured"}).settings()
    assert resolved.shared() == EXPERIMENT.shared()  # a run does not depend on where its values come from


def test_what_is_written_is_read() -> None:
    found = tuned.parse(FILE, json.dumps(left()), "make it")
    assert tuned.parse(FILE, tuned.to_text(found), "make it") == found
    assert found.methods["ditto"].values == {"coupling": 0.7}


def test_how_much_is_run_and_where_may_differ() -> None:
    for changes in (
        {"seeds": [7]},
        {"rounds": 9},
        {"evaluate_every": 2},
        {"theorem_samples": 5},
        {"compute": {"threads": 2}},
    ):
        with case(changes):
            assert resolve(left(), **changes).methods["ditto"] == {"coupling": 0.7}


def test_another_task_is_refused() -> None:
    for changes, named in (
        ({"partition": {"scheme": "all_labels"}}, "partition.scheme='two_labels', now 'all_labels'"),
        ({"clients": 6}, "clients=5, now 6"),
        ({"participation": 0.5}, "participation=1.0, now 0.5"),
        ({"architectures": ["cnn"]}, "architectures=['mlp'], now ['cnn']"),
        ({"private": {"source": "digits", "samples": 500}}, "private.samples=null, now 500"),
        ({"training": {"epochs": 3}}, "training.epochs=20, now 3"),
    ):
        with case(changes):
            message = refusal(left(), **changes)
            assert f"homo_mine were tuned for other settings ({named}); " in message
            assert "`kedro run --pipelines=tune_homo_mine`" in message


def test_no_file() -> None:
    message = refusal("")
    assert message.startswith(
        f"homo_mine.hyperparameters is tuned, and there is no {FILE}; run `kedro run --pipelines="
    )


def test_an_untuned_method_beside_tuned_ones_is_refused() -> None:
    content = left()
    del content["methods"]["ditto"]
    assert refusal(content).startswith(f"{FILE} has no hyperparameters of ditto, and tuned methods are not compared")
    assert resolve(content, ("local",)).methods == {"local": {}}


def test_a_value_configured_since_is_refused() -> None:
    """It would be passed over in silence."""
    message = refusal(left(), methods={"ditto": {"coupling": 0.3}, "local": {}})
    assert "tuned from other values (ditto: coupling=0.1, now 0.3)" in message


def test_a_value_that_cannot_be() -> None:
    for values, named in (
        ({"coupling": -1.0}, "values.coupling is -1.0"),
        ({"coupling": "x"}, f"{FILE}: methods.ditto.values.coupling is 'x'"),
        ({"couplin": 1.0}, "did you mean 'coupling'?"),
    ):
        with case(values):
            content = left()
            content["methods"]["ditto"]["values"] = values
            assert named in refusal(content)


def test_a_file_that_no_tuning_left() -> None:
    for text, named in (
        ("{", "is not valid JSON"),
        ("[]", "it must be a group of settings"),
        (json.dumps(left(methods={"ditto": {}})), "methods.ditto.values is missing"),
    ):
        with case(text):
            message = refusal(text)
            assert message.startswith(FILE)
            assert named in message
