"""What is refused, in which words."""

import math

import pytest

from ktpfl_pipeline.core.errors import InputError, check_choice, check_range


@pytest.mark.parametrize("value", [-0.1, -1, math.inf, -math.inf, math.nan])
def test_below_the_least_or_no_number(value: float) -> None:
    with pytest.raises(InputError, match=rf"^ditto\.coupling is {value}; it must be finite and at least 0\.$"):
        check_range("ditto.coupling", value, 0)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.inf, math.nan])
def test_outside_an_interval(value: float) -> None:
    with pytest.raises(InputError, match=rf"^fedamp\.attention is {value}; it must lie between 0 and 1\.$"):
        check_range("fedamp.attention", value, 0, 1)


@pytest.mark.parametrize("value", [None, 0, 0.0, 0.5, 1])
def test_the_ends_belong_to_it_and_none_is_a_default(value: float | None) -> None:
    check_range("fedamp.attention", value, 0, 1)


def test_a_choice() -> None:
    check_choice("sim_pfl.weights", "direct", ("minmax", "direct"))
    with pytest.raises(InputError, match=r"^sim_pfl\.weights is 'dirct'; choose one of minmax, direct\.$"):
        check_choice("sim_pfl.weights", "dirct", ("minmax", "direct"))
