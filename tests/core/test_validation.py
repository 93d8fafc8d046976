"""Settings are read strictly, by the annotations of a frozen dataclass; messages name path, value and rule."""

import math
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Interval, MinLen, MultipleOf
from cases import case

from ktpfl_pipeline.core.errors import InputError, nearest
from ktpfl_pipeline.core.settings import Adversaries
from ktpfl_pipeline.core.validation import Count, Distinct, Reads, changed, check, meanings, parse, plain


def one_or_more(value: Any) -> Any:
    return [value] if type(value) is int else value


@dataclass(frozen=True)
class Inner:
    """A group within a group.

    Attributes:
        steps: how many steps
            are taken.
    """

    steps: Count = 10


@dataclass(frozen=True)
class Settings:
    pull: Annotated[float | None, Ge(0)] = None
    temperature: Annotated[float, Gt(0)] = 1.0
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    order: Literal["paper", "reversed"] = "paper"
    workers: Literal["auto"] | Count = 1
    model: str = "lenet"
    normalize: bool = True
    seeds: Annotated[list[int], Reads(one_or_more), MinLen(1), Distinct()] = field(default_factory=lambda: [0])
    inner: Inner = Inner()
    by_name: dict[str, Inner] = field(default_factory=dict)


def refusal(values: Any) -> str:
    with pytest.raises(InputError) as refused:
        parse(Settings, values, "mine")
    return str(refused.value)


def test_what_is_not_allowed_is_named_with_what_is() -> None:
    for name, values, rule in (
        ("pull", [-0.1, math.inf, math.nan, 10**400, "much", True], "it must be a number of at least 0 or null"),
        ("temperature", [0.0, -2.0, math.inf, None], "it must be a number above 0"),
        ("share", [-0.1, 1.1, math.nan], "it must be a number from 0 to 1"),
        ("order", ["papre", None, 1], "it must be one of paper, reversed"),
        ("workers", [0, "all", True, 1.0], "it must be auto or an integer from 1 to 2,147,483,647"),
        ("model", [5, None], "it must be a string"),
        ("normalize", [1, "yes"], "it must be true or false"),
        ("seeds", [[], None, "0"], "it must be a list with at least 1 item"),
        ("inner", [5, None], "it must be a group of settings, for example inner: {steps: 10}"),
        ("by_name", [5, []], "it must be a mapping of names to values"),
    ):
        for value in values:
            with case(name, value):
                shown = {"None": "null", "True": "true"}.get(repr(value), repr(value))  # as in YAML
                assert refusal({name: value}) == f"mine.{name} is {shown}; {rule}."


def test_a_former_name_leads_to_the_present_one() -> None:
    """As a value of a setting, and as a setting's name."""
    with pytest.raises(
        InputError, match=r"kind is 'flipped' \('flipped' is called 'reversed' now\); it must be one of"
    ):
        parse(Adversaries, {"share": 0.1, "kind": "flipped"}, "mine.adversaries")
    assert nearest("flipped", ["clipped"], "") == "'flipped' is called 'reversed' now."


def test_the_path_leads_into_groups_lists_and_mappings() -> None:
    for values, message in (
        ({"inner": {"steps": 0}}, "mine.inner.steps is 0; it must be an integer from 1 to 2,147,483,647."),
        ({"seeds": [1, "x"]}, "mine.seeds.1 is 'x'; it must be an integer."),
        ({"seeds": [3, 3]}, "mine.seeds has 3 twice; list each item once."),
        ({"by_name": {"a": {"step": 1}}}, "mine.by_name.a.step does not exist; did you mean 'steps'?"),
        ({"zzz": 1}, "mine.zzz does not exist; mine has pull, temperature, share, order, workers, model, normalize, "),
        (5, "mine is 5; it must be a group of settings, for example mine: {temperature: 1.0}."),
    ):
        with case(values):
            assert refusal(values).startswith(message)


def test_several_wrong_settings_are_all_named() -> None:
    assert refusal({"share": 2, "inner": 1, "odd": 0}).count("mine.") >= 3


def test_what_is_allowed_is_kept_in_its_full_form() -> None:
    found = parse(Settings, {"pull": 1, "workers": "auto", "seeds": 7, "by_name": {"a": {}}, "inner": Inner(3)}, "mine")
    assert (found.pull, found.workers, found.seeds) == (1, "auto", [7])
    assert (found.by_name, found.inner.steps) == ({"a": Inner()}, 3)
    assert changed(found).keys() == {"pull", "workers", "seeds", "by_name", "inner"}
    assert plain(found)["by_name"] == {"a": {"steps": 10}}
    assert repr(found.pull) == "1.0"  # so that a run with 1 has the key of one with 1.0


def test_a_group_made_in_python_is_checked_too() -> None:
    check(Settings(), "mine")
    for made in (Settings(share=2.0), Settings(inner=Inner(0)), Settings(seeds=[])):
        with pytest.raises(InputError, match=r"^mine\."):
            check(made, "mine")


def test_a_setting_without_a_default_is_asked_for() -> None:
    needy = make_dataclass("Needy", [("steps", int)], frozen=True)
    with pytest.raises(InputError, match=r"^mine\.steps is missing; set it in conf/"):
        parse(needy, {}, "mine")


@pytest.mark.parametrize(
    "kind",
    [
        Annotated[int, MultipleOf(2)],
        Annotated[int, MultipleOf(2)] | None,
        tuple[Annotated[int, MultipleOf(2)], ...],
        dict[str, list[Annotated[int, MultipleOf(2)]]],
    ],
)
def test_a_bound_that_would_be_ignored_is_refused(kind: Any) -> None:
    odd = make_dataclass("Odd", [("steps", kind, 2)], frozen=True)
    with pytest.raises(InputError, match="which is not supported"):
        check(odd(), "mine")


def test_a_string_in_an_annotation_is_a_remark() -> None:
    remarked = make_dataclass("Remarked", [("steps", Annotated[int, "of descent", Ge(1)], 2)], frozen=True)
    check(remarked(1), "mine")
    with pytest.raises(InputError, match="it must be an integer of at least 1"):
        check(remarked(0), "mine")


def test_meanings_are_those_of_the_docstring() -> None:
    assert meanings(Inner) == {"steps": "how many steps are taken."}
