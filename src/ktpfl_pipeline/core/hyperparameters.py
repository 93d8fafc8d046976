"""A method's hyperparameters say in their annotations which values they may have; here values are checked.

A hyperparameter is a field of a frozen dataclass: ``mu: Annotated[float, Interval(ge=0, le=1)] = 1.0`` with a bound of
`annotated_types`, ``order: Literal["paper", "reversed"] = "paper"`` for a choice, ``| None`` where None may stand.
"""

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt

from ktpfl_pipeline.core.errors import InputError

BOUNDS = {
    Ge: (operator.ge, "ge", "at least"),
    Gt: (operator.gt, "gt", "above"),
    Le: (operator.le, "le", "at most"),
    Lt: (operator.lt, "lt", "below"),
}


class Allowed(NamedTuple):
    """What one hyperparameter may be.

    Attributes:
        plain: its type without bounds and choices.
        choices: of a `Literal`; else empty.
        bounds: of a number.
    """

    plain: Any
    choices: tuple[Any, ...]
    bounds: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        """Say whether a value of the right type is allowed."""
        if value is None:
            return NoneType in (self.plain, *get_args(self.plain))
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float):
            return not self.bounds
        return -math.inf < value < math.inf and all(
            test(value, getattr(bound, name)) for bound in self.bounds for test, name, _ in [BOUNDS[type(bound)]]
        )

    def __str__(self) -> str:
        """Return what is allowed in words, after ``it must``."""
        if self.choices:
            return f"be one of {', '.join(map(str, self.choices))}"
        ends = {type(bound): getattr(bound, BOUNDS[type(bound)][1]) for bound in self.bounds}
        if ends.keys() == {Ge, Le}:
            return f"lie between {ends[Ge]} and {ends[Le]}"
        return " and ".join(["be finite", *(f"{BOUNDS[kind][2]} {end}" for kind, end in ends.items())])


@cache
def allowed(kind: type) -> dict[str, Allowed]:
    """Return what each hyperparameter of a dataclass may be, in the order of its fields.

    Raises:
        InputError: if an annotation has a bound that is not known, or where it would not be seen.
    """
    hints, known = get_type_hints(kind, include_extras=True), {}
    for name in [entry.name for entry in fields(kind)]:
        plain, *metadata = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        choices = get_args(plain) if get_origin(plain) is Literal else ()
        bounds = tuple(bound for bound in _flat(metadata) if not isinstance(bound, str))  # a text is a remark
        if odd := [bound for bound in bounds if type(bound) not in BOUNDS]:
            raise InputError(
                f"{kind.__name__}.{name} is annotated with {odd[0]!r}, which is not checked here; bounds are Ge, Gt, "
                "Le, Lt and Interval of annotated_types: leave it out, or check it in __post_init__."
            )
        if any(get_origin(part) is Annotated for part in get_args(plain)):
            raise InputError(
                f"{kind.__name__}.{name} has a bound within its type, where it is not checked; put it around all of "
                "the type, as in Annotated[float | None, Ge(0)]."
            )
        known[name] = Allowed(type(choices[0]) if choices else plain, choices, bounds)
    return known


def check(kind: type, values: Mapping[str, Any], where: str) -> None:
    """Check that hyperparameters are finite and within their bounds, or among their choices.

    Args:
        kind: the dataclass whose fields they are.
        values: some of them by name.
        where: whose they are, for the message: the method as it was asked for.

    Raises:
        InputError: for the first one that is not, and what is allowed.
    """
    for name, rule in allowed(kind).items():
        if name in values and values[name] not in rule:
            words = f"choose {str(rule).removeprefix('be ')}" if rule.choices else f"it must {rule}"
            raise InputError(f"{where}.{name} is {values[name]!r}; {words}.")


def _flat(metadata: list[Any]) -> Iterator[Any]:
    for part in metadata:
        yield from part if isinstance(part, GroupedMetadata) else [part]
