"""Hyperparameters are held against the bounds and choices of their annotations."""

import math
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Gt, Interval, Len, MultipleOf

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.hyperparameters import check


@dataclass(frozen=True)
class Settings:
    pull: Annotated[float | None, Ge(0)] = None
    steps: Annotated[int, Ge(1)] = 10
    temperature: Annotated[float, Gt(0)] = 1.0
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    offset: float = 0.0
    half_open: Annotated[float, Interval(ge=-1, lt=1)] = 0.0
    order: Literal["paper", "reversed"] = "paper"
    model: str = "lenet"
    normalise: bool = True


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("pull", [-0.1, -1, math.inf, -math.inf, math.nan, "much"], "it must be finite and at least 0"),
        ("steps", [0, None], "it must be finite and at least 1"),
        ("temperature", [0.0, -2.0, math.inf, math.nan], "it must be finite and above 0"),
        ("share", [-0.1, 1.1, math.inf, math.nan], "it must lie between 0 and 1"),
        ("offset", [math.inf, math.nan, None], "it must be finite"),
        ("half_open", [1, -1.1], "it must be finite and at least -1 and below 1"),
        ("order", ["papre", None, 1], "choose one of paper, reversed"),
    ],
)
def test_what_is_not_allowed_is_told_with_what_is(name: str, values: list[Any], rule: str) -> None:
    for value in values:
        with pytest.raises(InputError) as refused:
            check(Settings, {name: value}, "mine")
        assert str(refused.value) == f"mine.{name} is {value!r}; {rule}."


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"pull": None, "steps": 1, "temperature": 1e-9, "share": 0, "half_open": -1, "order": "reversed"},
        {"pull": 0, "steps": 10**400, "share": 1.0, "offset": -1e9, "model": "mlp", "normalise": False},
    ],
)
def test_the_ends_belong_to_an_interval(values: dict[str, Any]) -> None:
    check(Settings, values, "mine")


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[int, MultipleOf(2)], "Odd.steps is annotated with MultipleOf(multiple_of=2), which is not checked"),
        (Annotated[int, Ge(1), MultipleOf(2)], "bounds are Ge, Gt, Le, Lt and Interval of annotated_types: leave it"),
        (Annotated[str, Len(1, 3)], "Odd.steps is annotated with MinLen(min_length=1)"),
        (Annotated[float, Ge(0)] | None, "Odd.steps has a bound within its type, where it is not checked; put it "),
    ],
    ids=str,
)
def test_a_bound_that_would_be_ignored_is_refused(annotation: Any, said: str) -> None:
    odd = make_dataclass("Odd", [("steps", annotation, 2)], frozen=True)
    with pytest.raises(InputError) as refused:
        check(odd, {"steps": 2}, "mine")
    assert said in str(refused.value)


def test_a_text_is_a_remark() -> None:
    remarked = make_dataclass("Remarked", [("steps", Annotated[int, "of descent", Ge(1)], 2)], frozen=True)
    check(remarked, {"steps": 1}, "mine")
    with pytest.raises(InputError, match="it must be finite and at least 1"):
        check(remarked, {"steps": 0}, "mine")
