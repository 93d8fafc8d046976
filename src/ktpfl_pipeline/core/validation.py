"""Strict reading of settings. A group of settings is a frozen dataclass; its annotations state the allowed values.

A field ``mu: Annotated[float, Interval(ge=0, le=1)] = 1.0`` has bounds of `annotated_types`. A `Literal` lists choices,
``| None`` allows null, another dataclass is a group within the group, and `Reads` accepts short forms. The meaning of a
field is its entry under ``Attributes:`` in the docstring of the class; `meanings` returns these entries for the
reference pages. Methods' hyperparameters follow the same rules.
"""

import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, cached_property
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MaxLen, MinLen

from ktpfl_pipeline.core.errors import InputError, nearest, plural, renamed, written

Group = TypeVar("Group")
LARGEST = 2**31 - 1
Share = Annotated[float, Gt(0), Lt(1)]
Part = Annotated[float, Ge(0), Lt(1)]
Chance = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Gt(0), Le(1)]
Positive = Annotated[float, Gt(0), Le(1e6)]  # values far above this make float32 overflow
NotNegative = Annotated[float, Ge(0), Le(1e30)]  # float32 holds up to 3e38
Natural = Annotated[int, Ge(0), Le(LARGEST)]
Count = Annotated[int, Ge(1), Le(LARGEST)]
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]

BOUNDS = {
    Ge: (operator.ge, "ge", "of at least"),
    Gt: (operator.gt, "gt", "above"),
    Le: (operator.le, "le", "at most"),
    Lt: (operator.lt, "lt", "below"),
}
WORDS: dict[Any, str] = {
    **{int: "an integer", float: "a number", bool: "true or false", str: "a string"},
    **{list: "a list", tuple: "a list", frozenset: "a set", dict: "a mapping of names to values"},
}
MOST = 5
"""The largest number of wrong settings that one message lists."""


WORD = {"schedule": "kind", "knowledge": "encoding", "choice": "by"}
"""Groups that may be given as one word, with the setting whose value the word is: ``schedule: cosine``."""


def spelt_out(group: str, value: Any) -> Any:
    """Return the settings of a group that was given as one word (`WORD`); return any other value unchanged."""
    return {WORD[group]: value} if group in WORD and isinstance(value, str) else value


@dataclass(frozen=True)
class Reads:
    """Annotation: accept short forms of a setting."""

    # returns the setting in its full form; raises ValueError, whose message says what the setting must be
    read: Callable[[Any], Any]
    words: str = ""  # the allowed values in words, if the type does not state them


@dataclass(frozen=True)
class Distinct:
    """Annotation of a list: no item may occur twice."""


@dataclass(frozen=True)
class Rule:
    """The rule for the values of one setting. What follows from the annotation is computed once, not for each value."""

    plain: Any  # the type of the values, without metadata
    metadata: tuple[Any, ...] = ()  # bounds, lengths, `Reads` and `Distinct`

    @classmethod
    def of(cls, hint: Any) -> "Rule":
        """Return the rule that a type annotation states. Nested `Annotated` types are combined into one rule."""
        metadata: list[Any] = []
        while get_origin(hint) is Annotated:
            hint, *own = get_args(hint)
            metadata = [*own, *metadata]
        parts = (each if isinstance(each, GroupedMetadata) else [each] for each in metadata)
        return cls(hint, tuple(chain.from_iterable(parts)))

    @cached_property
    def parts(self) -> list["Rule"]:
        """The rules of a union's members except null; for any other type, a list of the rule itself."""
        if self.origin not in (Union, UnionType):
            return [self]
        parts = [Rule.of(part) for part in get_args(self.plain) if part is not NoneType]
        return [Rule(part.plain, (*self.metadata, *part.metadata)) for part in parts]

    @cached_property
    def item(self) -> "Rule":
        """The rule of the items of a list or a set, or of the values of a mapping."""
        return Rule.of(get_args(self.plain)[-1 if self.origin is dict else 0])

    @cached_property
    def origin(self) -> Any:
        return get_origin(self.plain)

    @cached_property
    def is_group(self) -> bool:
        return is_dataclass(self.plain)

    @cached_property
    def classes(self) -> Any:
        """The classes of values. An integer is also accepted as a number."""
        known: Any = {list: (list, tuple), tuple: (list, tuple), dict: (dict, Mapping), float: (int, float)}
        plain = self.origin or self.plain
        return (plain, dict, Mapping) if self.is_group else known.get(plain, plain)

    @cached_property
    def bounds(self) -> list[tuple[Callable[[Any, Any], bool], Any]]:
        """The comparisons that a number must pass, each with the bound."""
        return [
            (test, getattr(each, name))
            for each in self.metadata
            if type(each) in BOUNDS
            for test, name, _ in [BOUNDS[type(each)]]
        ]

    @cached_property
    def lengths(self) -> tuple[int, int | None]:
        """The least and the largest length of a string, list or mapping."""
        most = [each.max_length for each in self.metadata if isinstance(each, MaxLen)]
        least = [each.min_length for each in self.metadata if isinstance(each, MinLen)]
        return max(least, default=0), min(most, default=None)

    @cached_property
    def optional(self) -> bool:
        return self.plain in (None, NoneType) or NoneType in get_args(self.plain)

    @cached_property
    def groups(self) -> list[Any]:
        """The groups of settings that a value may be."""
        return [part.plain for part in self.parts if part.is_group]

    def __str__(self) -> str:
        """Return the allowed values in words that complete the sentence ``it must be ...``."""
        if words := [each.words for each in self.metadata if isinstance(each, Reads) and each.words]:
            return words[-1] + " or null" * self.optional
        texts = [_words(part.plain, part.metadata) for part in self.parts]
        text = " or ".join(dict.fromkeys(texts)) + _length(self)
        return text + " or null" * self.optional


def _words(plain: Any, metadata: Iterable[Any]) -> str:
    origin, items = get_origin(plain), get_args(plain)
    if origin is Literal:
        return f"one of {', '.join(map(str, items))}" if len(items) > 1 else str(items[0])
    if is_dataclass(plain):
        return "a group of settings"
    ends = {type(each): getattr(each, BOUNDS[type(each)][1]) for each in metadata if type(each) in BOUNDS}
    said = {kind: f"{end:,}" if isinstance(end, int) else f"{end:g}" for kind, end in ends.items()}
    name = WORDS.get(origin or plain, "a value")
    if said.keys() == {Ge, Le}:
        return f"{name} from {said[Ge]} to {said[Le]}"
    return " ".join([name, " and ".join(f"{BOUNDS[kind][2]} {said[kind]}" for kind in said)]).strip()


def _length(rule: Rule) -> str:
    """Return the allowed length in words, such as `` with at least 1 item``; empty if any length is allowed."""
    least, most = rule.lengths
    unit = "character" if rule.parts[0].plain is str else "item"
    words = [f"at least {plural(least, unit)}"] * bool(least)
    words += [] if most is None else [f"at most {plural(most, unit)}"]
    return f" with {' and '.join(words)}" if words else ""


@cache
def rules(kind: type) -> dict[str, Rule]:
    """Return the rule of each setting of a group, in the order of its fields.

    Raises InputError if a setting's annotation has metadata that is not supported.
    """
    hints = get_type_hints(kind, include_extras=True)
    found = {entry.name: Rule.of(hints[entry.name]) for entry in fields(cast("Any", kind)) if entry.init}
    for name, rule in found.items():
        known = (*BOUNDS, MinLen, MaxLen, Reads, Distinct, str)  # a string is a remark
        if odd := [each for each in _all_metadata(rule) if not isinstance(each, known)]:
            raise InputError(
                f"{kind.__name__}.{name} is annotated with {odd[0]!r}, which is not supported. Supported are Ge, Gt, "
                "Le, Lt, Interval and Len of annotated_types. Remove it, or check the value in __post_init__."
            )
    return found


def _all_metadata(rule: Rule) -> Iterator[Any]:
    """Yield the metadata of a rule, of the members of its union and of the items of its list or mapping."""
    yield from rule.metadata
    for part in rule.parts:
        if part is not rule:
            yield from _all_metadata(part)
        elif get_origin(part.plain) in (list, tuple, frozenset, dict):
            yield from chain.from_iterable(_all_metadata(Rule.of(item)) for item in get_args(part.plain))


def parse(kind: type[Group], values: Any, where: str) -> Group:
    """Return a group of settings from plain values by name, such as those of a YAML file.

    A group within the group may be a mapping or an object of its class. `where` is the path to the values, for
    messages. Raises InputError with a message for each of the first `MOST` settings that are unknown, missing or not
    allowed.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} is {written(values)}; it must be a group of settings{_example(kind, where)}.")
    allowed, wrong, found = rules(cast("Any", kind)), list[str](), dict[str, Any]()
    for name in values:
        if name not in allowed:
            wrong.append(_unknown(name, allowed, where))
    for entry in fields(cast("Any", kind)):
        path = f"{where}.{entry.name}"
        if entry.name in values:
            try:
                found[entry.name] = value_of(allowed[entry.name], values[entry.name], path)
            except InputError as error:
                wrong.append(str(error))
        elif entry.init and entry.default is entry.default_factory is MISSING:
            wrong.append(f"{path} is missing; set it in conf/ or with --params {path}=...")
    if wrong:
        raise InputError(" ".join(wrong[:MOST]))
    return kind(**found)


def check(group: Any, where: str) -> None:
    """Check the settings of a group that was built in Python; raise InputError for the first that is not allowed."""
    if not is_dataclass(group):
        raise InputError(f"{where} is {written(group)}; change the settings of a group with dataclasses.replace.")
    check_some(type(group), {entry.name: getattr(group, entry.name) for entry in fields(group) if entry.init}, where)


class Section:
    """Base of sections of conf/: their constructors accept plain values, from which Kedro builds typed parameters."""

    def __post_init__(self) -> None:
        """Convert each setting to its full form; raise InputError for the first that is not allowed."""
        for name, rule in rules(cast("Any", type(self))).items():
            object.__setattr__(self, name, value_of(rule, getattr(self, name), name))


def check_some(kind: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the checked values of some settings of a group; raise InputError for the first wrong one."""
    allowed = rules(kind)
    for name in values:
        if name not in allowed:
            raise InputError(_unknown(name, allowed, where))
    return {name: value_of(allowed[name], value, f"{where}.{name}") for name, value in values.items()}


def value_of(rule: Rule, given: Any, where: str) -> Any:
    """Return the value of one setting in its full form; InputError names its path, `where`, if it is not allowed."""
    value = given.item() if getattr(given, "shape", None) == () else given  # a number of numpy or torch
    for each in rule.metadata:
        if isinstance(each, Reads):
            try:
                value = each.read(value)
            except InputError as error:  # a group within the value is wrong
                raise InputError(f"{where}.{error}") from error
            except ValueError as error:
                raise InputError(f"{where} is {written(given)}; it must be {error}.") from None
    if value is None and rule.optional:
        return None
    for part in rule.parts:
        if _is(part, value):
            alone = isinstance(value, list) and len(value) == 1 and not isinstance(given, list | tuple)
            found = _inner(part, value, where, alone=alone)
            if part.plain is not Any and not _within(part, found):
                break
            _check_items(part, found, where)
            return float(found) if part.plain is float else found  # 2 and 2.0 are one setting, and one run
    example = _example(rule.groups[0], where) if rule.groups and len(rule.parts) == 1 else ""
    named = isinstance(given, bool) and "string" in str(rule)
    said = " (YAML reads yes, no, on and off as true and false; quotes make a string)" * named
    said += f" ({now})" if (now := renamed(given)) else ""
    raise InputError(f"{where} is {written(given)}{said}; it must be {rule}{example}.")


def plain(value: Any) -> Any:
    """Return settings as plain values: groups as dictionaries, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def meanings(kind: type) -> dict[str, str]:
    """Return the meaning of each setting of a group: its entry under ``Attributes:`` in its class or a base class."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        section = re.search(r"^Attributes:\n((?: .*\n?|\n)*)", inspect.cleandoc(each.__doc__ or ""), re.MULTILINE)
        for name, meaning in re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", section[1] if section else "", re.MULTILINE):
            found[name] = " ".join(meaning.split())
    return found


def changed(group: Any) -> dict[str, Any]:
    return {each.name: value for each in fields(group) if (value := getattr(group, each.name)) != default(each)}


def default(entry: Field[Any]) -> Any:
    """Return the default of a field; MISSING if it has none."""
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def _unknown(name: Any, allowed: Iterable[str], where: str) -> str:
    hint = nearest(str(name), allowed, f"{where} has {', '.join(allowed) or 'no settings'}.")
    return f"{where}.{name} does not exist; {hint}"


def _example(kind: type, where: str) -> str:
    """Return an example of a group with its first setting whose default is a number or a string; else nothing."""
    for entry in fields(cast("Any", kind)):
        if type(entry.default) in (int, float, str):
            return f", for example {where.rpartition('.')[2]}: {{{entry.name}: {entry.default}}}"
    return ""


def _is(rule: Rule, value: Any) -> bool:
    """Return whether a value has the type of a rule. True and false are not integers."""
    if rule.plain is Any:
        return True
    if rule.origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(rule.plain))
    return isinstance(value, rule.classes) and (rule.plain is bool or not isinstance(value, bool))


def _inner(rule: Rule, value: Any, where: str, *, alone: bool = False) -> Any:
    """Return a value of the right type after a check of its items or settings.

    `alone` means that one item was given without a list, and `value` is the list of this item. Messages then do not
    number the item.
    """
    if rule.is_group:
        if isinstance(value, Mapping):
            return parse(cast("type", rule.plain), value, where)
        check(value, where)
        return value
    if rule.origin in (list, tuple, frozenset):
        return rule.origin(
            value_of(rule.item, each, where if alone else f"{where}.{i}") for i, each in enumerate(value)
        )
    if rule.origin is dict:
        return {name: value_of(rule.item, each, f"{where}.{name}") for name, each in value.items()}
    return value


def _within(rule: Rule, value: Any) -> bool:
    """Return whether a number is finite and within its bounds, or a string, list or mapping has an allowed length."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) <= sys.float_info.max and all(test(value, bound) for test, bound in rule.bounds)
    if isinstance(value, str | list | tuple | Mapping):
        least, most = rule.lengths
        return least <= len(value) and (most is None or len(value) <= most)
    return True


def _check_items(rule: Rule, value: Any, where: str) -> None:
    """Check that a list has no item twice if it is annotated with `Distinct`; items need not be hashable."""
    if isinstance(value, list | tuple) and any(isinstance(each, Distinct) for each in rule.metadata):
        for place, each in enumerate(value):
            if each in value[:place]:
                raise InputError(f"{where} has {each} twice; list each item once.")
