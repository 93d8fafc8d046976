"""A section says only what differs from the one that it is like."""

from dataclasses import replace

import pytest
from cases import case
from experiment import EXPERIMENT, SWEEP

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.inheritance import inherited
from ktpfl_pipeline.core.errors import InputError


def test_what_is_left_out_is_taken_from_the_other_at_any_depth() -> None:
    changes = {"like": "theirs", "training": {"epochs": 7}, "architectures": ["mlp"]}
    mine = parsing.parse("mine", inherited({"mine": changes, "theirs": EXPERIMENT})["mine"])
    theirs = parsing.parse("theirs", EXPERIMENT)
    training = replace(theirs.training, epochs=7)
    assert mine == replace(theirs, training=training, architectures=["mlp"])


def test_a_word_for_a_group_is_kept_where_more_of_the_group_is_set() -> None:
    """``schedule: cosine`` in one place, and its warm-up in another."""
    theirs = {**EXPERIMENT, "training": {**EXPERIMENT["training"], "schedule": "cosine"}, "knowledge": "top_k"}
    child = {"like": "theirs", "training": {"schedule": {"warm_up": 2}}, "knowledge": {"k": 1}}
    inheriting = inherited({"theirs": theirs, "mine": child})["mine"]
    asked = parsing.merged({"mine": theirs}, {"mine": {name: child[name] for name in ("training", "knowledge")}})[
        "mine"
    ]
    for section in (inheriting, asked):
        found = parsing.parse("mine", section)
        assert (found.training.schedule.kind, found.training.schedule.warm_up) == ("cosine", 2)
        assert (found.knowledge.encoding, found.knowledge.k) == ("top_k", 1)


def test_the_other_may_be_like_a_third_and_stays_as_it_is() -> None:
    sections = {"a": {"like": "b", "rounds": 1}, "b": {"like": "c", "image": None, "rounds": 2}, "c": EXPERIMENT}
    found = inherited(sections)
    assert (found["a"]["rounds"], found["a"]["image"], found["a"]["clients"]) == (1, None, 5)
    assert found["b"] == {**EXPERIMENT, "image": None, "rounds": 2}
    assert found["c"] == EXPERIMENT
    assert sections["a"] == {"like": "b", "rounds": 1}


def test_params_of_the_other_are_inherited_too() -> None:
    configured = {"theirs": EXPERIMENT, "mine": {"like": "theirs"}, "_shared": {"like": "nobody"}}
    assert parsing.merged(configured, {"theirs": {"rounds": 9}})["mine"]["rounds"] == 9
    assert parsing.merged(configured, {"theirs": {"rounds": 9}, "mine": {"rounds": 8}})["mine"]["rounds"] == 8


def test_a_section_with_an_underscore_is_there_to_be_like() -> None:
    """It may be like another in turn; what ``--params`` say of it holds for all that are like it."""
    configured = {
        "mine": {"like": "_mine", "clients": 3},
        "_mine": {"like": "_all", "rounds": 4},
        "_all": EXPERIMENT,
        "tune_mine": {"like": "_tune_all", "seeds": [1]},
        "_tune_all": {"trials": 2, "seeds": [0]},
    }
    assert parsing.merged(configured, {"_all": {"rounds": 7, "clients": 9, "image": None}}) == {
        "mine": {**EXPERIMENT, "rounds": 4, "clients": 3, "image": None},
        "tune_mine": {"trials": 2, "seeds": [1]},
    }
    message = r"^mine\.like is '_tune_all', which is a tuning, and mine is an experiment; did you mean '_all'\?$"
    with pytest.raises(InputError, match=message):
        inherited({**configured, "mine": {"like": "_tune_all"}})


def test_sweeps_and_tunings_inherit_from_their_kind() -> None:
    sections = {"mine": EXPERIMENT, "sweep_a": SWEEP, "sweep_b": {"like": "sweep_a", "values": [2]}}
    assert inherited(sections)["sweep_b"] == {**SWEEP, "values": [2]}
    message = r"^sweep_a\.like is 'mine', which is an experiment, and sweep_a is a sweep; choose from sweep_b\.$"
    with pytest.raises(InputError, match=message):
        inherited({**sections, "sweep_a": {"like": "mine"}})


def test_what_cannot_be() -> None:
    for sections, message in (
        ({"a": {"like": "theris"}, "theirs": {}}, "a.like is 'theris', which does not exist; did you mean 'theirs'?"),
        ({"a": {"like": "a"}, "b": {}}, "a.like is 'a', which is this section itself; choose from b."),
        ({"a": {"like": "a"}}, "a.like is 'a', which is this section itself; take it out."),
        (
            {"a": {"like": "sweep_rho"}, "sweep_rho": {}, "_rho": {"low": 0.1, "high": 1}, "b": {}},
            "a.like is 'sweep_rho', which is a sweep, and a is an experiment; choose from b.",
        ),
        (
            {"a": {"like": "paper"}, "paper": {}},
            "a.like is 'paper', which is the section of the paper, and a is an experiment; ",
        ),
        ({"a": {"like": "rho"}, "_rho": [1, 2], "b": {}}, "a.like is 'rho', which does not exist; choose from b."),
        (
            {"_m": [1], "a": {"like": ["c"]}, "b": {}, "c": {}},
            "a.like is ['c']; it must be the name of a section, as in like: c.",
        ),
        (
            {"_m": {"low": 1}, "_n": {}, "a": {"like": 5}, "b": {}},
            "a.like is 5; it must be the name of a section, as in like: b.",
        ),
        ({"a": {"like": "b"}, "b": {"like": "a"}}, "b.like is 'a', which is like b itself; take `like` out of one of"),
        ({"a": {"like": ["b"]}, "b": {}}, "a.like is ['b']; it must be the name of a section, as in like: b."),
        ({"a": {"like": None}}, "a.like is null; it must be the name of a section"),
        ({"a/b": {}}, "A section in conf/ is called 'a/b'; pipelines and folders are named by it"),
        ({"..": {}}, "A section in conf/ is called '..'; "),
        ({"compare_mine": {}}, "that does not begin with compare_ or overview."),
        ({"overview": {}}, "A section in conf/ is called 'overview'; "),
    ):
        with case(sections):
            with pytest.raises(InputError) as refused:
                inherited(sections)
            assert message in str(refused.value)
