"""Each rule about settings that exclude each other holds for the parser, for a federation in Python, and the engine."""

import re
from dataclasses import replace
from typing import Any

import pytest
from cases import case
from experiment import EXPERIMENT
from toy import alike, federation

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Public
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.rules import Descent
from ktpfl_pipeline.core.compatibility import conflicts, problems
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Adversaries, Knowledge, LocalTraining, Privacy
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.local import Local

RULES: list[tuple[str, dict[str, Any], str]] = [
    ("fedproto", {"adversaries": Adversaries(share=0.5)}, "adversaries.share is 0.5, which excludes FedProto"),
    ("scarlet", {"knowledge": Knowledge(cache=2)}, "knowledge.cache is 2, which excludes SCARLET"),
    ("kt_pfl_joint", {"knowledge": Knowledge(noise=0.1)}, "knowledge.noise is 0.1, which excludes KT-pFL (joint)"),
    ("ditto", {"training": {"momentum": 0.9}}, "training.momentum is 0.9, which excludes Ditto"),
]
"""(method, settings, beginning of the message)."""


def of_toy(changes: dict[str, Any]) -> Any:
    fed = federation(architectures=("linear",))
    changes = {name: replace(fed.training, **value) if name == "training" else value for name, value in changes.items()}
    return replace(fed, **changes)


def test_a_federation_in_python_follows_the_same_rules_as_a_section() -> None:
    section = parsing.form("mine", {**EXPERIMENT, "training": {}, "architectures": ["mlp"]})
    for name, changes, message in RULES:
        with case(name):
            method, fed = create(name), of_toy(changes)
            found = problems(method, fed)[-1]
            assert found.startswith(message)
            parsed = replace(section, **{key: getattr(fed, key) for key in changes})
            assert problems(method, parsed)[-1] == found
            with pytest.raises(InputError) as refused:
                engine.run(method, fed, engine.Schedule(1))
            assert found in str(refused.value)


def test_settings_that_exclude_each_other_make_no_federation() -> None:
    for changes, message in (
        ({"training": {"nesterov": True}}, "training.nesterov is true but momentum is 0"),
        ({"training": {"learning_rate": -1.0}}, "training.learning_rate is -1.0; it must be a number from 0"),
        ({"knowledge": Knowledge(noise=-1.0)}, "knowledge.noise is -1.0; it must be a number from 0"),
        ({"knowledge": Knowledge(select=2.0)}, "knowledge.select is 2.0; it must be a number above 0"),
    ):
        with case(changes), pytest.raises(InputError, match=f"^{message}"):
            of_toy(changes)


def test_what_goes_together_has_no_problems() -> None:
    fed = federation()
    for name in ("kt_pfl", "fedmd", "local"):
        assert problems(create(name), fed) == []


@pytest.mark.parametrize("name", ["kt_pfl", "feddf", "pfeddf"])
def test_without_public_samples_a_method_that_needs_them_is_refused_before_it_trains(name: str) -> None:
    """FedDF, too, from which no prediction comes: its server needs them."""
    fed, method = federation(2), create(name)
    fed = replace(fed, public=fed.public[:0], public_batch_size=0)
    section = replace(parsing.form("mine", {**EXPERIMENT, "training": {}}), public=Public(source="none"))
    message = f"public.source is none, which excludes {method.title}: public samples are needed."
    for setting in (fed, section):
        (found,) = problems(method, setting)
        assert found.startswith(message)
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        engine.run(method, fed, engine.Schedule(1))
    assert fed.current.seconds == {}


def test_a_method_that_does_not_declare_what_it_needs_is_refused_by_the_same_rule_as_it_runs() -> None:
    several, alone = federation(), of_toy({"training": {"momentum": 0.9}})
    models = several.initial_models()
    for use, message in (
        (lambda: several.architecture, "architectures is linear, conv, mlp, which excludes this method: models are"),
        (
            lambda: alone.train_by(Descent(), models, 1),
            "training.momentum is 0.9, which excludes this method: the m",
        ),
        (
            lambda: replace(alone, public=alone.public[:0], public_batch_size=0).public_batch(1),
            "public.source is none, which excludes this method: public samples are needed",
        ),
    ):
        with case(message), pytest.raises(InputError, match=f"^{message}"):
            use()


def test_private_training_needs_a_method_that_declares_to_be_covered() -> None:
    class Own(Local):
        title = "Own"

    fed = alike(training=LocalTraining(epochs=1, batch_size=4, privacy=Privacy(1.0, delta=0.04)))
    (conflict,) = conflicts(Own, fed)
    assert "its class does not declare `covered`" in conflict.text()
    assert not [*conflicts(Local, fed)]
