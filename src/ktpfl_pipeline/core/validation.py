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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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


class Rule(NamedTuple):
    """The rule for the values of one setting."""

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

    @property
    def parts(self) -> list["Rule"]:
        """The rules of a union's members except null; for any other type, a list of the rule itself."""
        if get_origin(self.plain) in (Union, UnionType):
            return [Rule.of(part) for part in get_args(self.plain) if part is not NoneType]
        return [self]

    @property
    def optional(self) -> bool:
        return self.plain in (None, NoneType) or NoneType in get_args(self.plain)

    @property
    def groups(self) -> list[Any]:
        """The groups of settings that a value may be."""
        return [part.plain for part in self.parts if is_dataclass(part.plain)]

    def __str__(self) -> str:
        """Return the allowed values in words that complete the sentence ``it must be ...``."""
        if words := [each.words for each in self.metadata if isinstance(each, Reads) and each.words]:
            return words[-1] + " or null" * self.optional
        texts = [_words(part.plain, [*self.metadata, *part.metadata]) for part in self.parts]
        text = " or ".join(dict.fromkeys(texts)) + _length(self.parts, self.metadata)
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


def _length(parts: Sequence[Any], metadata: Sequence[Any]) -> str:
    """Return the allowed length in words, such as `` with at least 1 item``; empty if any length is allowed."""
    least = max((each.min_length for each in metadata if isinstance(each, MinLen)), default=0)
    most = [each.max_length for each in metadata if isinstance(each, MaxLen)]
    unit = "character" if parts[0].plain is str else "item"
    words = [f"at least {plural(least, unit)}"] * bool(least)
    words += [f"at most {plural(most[0], unit)}"] if most else []
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
    value = given
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
    parts = rule.parts
    for part in parts:
        if _is(part.plain, value):
            alone = isinstance(value, list) and len(value) == 1 and not isinstance(given, list | tuple)
            found = _inner(part, value, where, alone=alone)
            if part.plain is not Any and not _within(found, [*rule.metadata, *part.metadata]):
                break
            _check_items(found, [*rule.metadata, *part.metadata], where)
            return float(found) if part.plain is float else found  # 2 and 2.0 are one setting, and one run
    example = _example(rule.groups[0], where) if rule.groups and len(parts) == 1 else ""
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


def _is(plain: Any, value: Any) -> bool:
    """Return whether a value has a type. An integer is also accepted as a number; true and false are not integers."""
    origin = get_origin(plain)
    if plain is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(plain))
    kinds: Any = {list: (list, tuple), tuple: (list, tuple), dict: Mapping, float: (int, float)}.get(
        origin or plain, origin or plain
    )
    return isinstance(value, (kinds, Mapping) if is_dataclass(plain) else kinds) and (
        plain is bool or not isinstance(value, bool)
    )


def _inner(rule: Rule, value: Any, where: str, *, alone: bool = False) -> Any:
    """Return a value of the right type after a check of its items or settings.

    `alone` means that one item was given without a list, and `value` is the list of this item. Messages then do not
    number the item.
    """
    origin, items = get_origin(rule.plain), get_args(rule.plain)
    if is_dataclass(rule.plain):
        if isinstance(value, Mapping):
            return parse(cast("type", rule.plain), value, where)
        check(value, where)
        return value
    if origin in (list, tuple, frozenset):
        item = Rule.of(items[0])
        return origin(value_of(item, each, where if alone else f"{where}.{i}") for i, each in enumerate(value))
    if origin is dict:
        own = Rule.of(items[1])
        return {name: value_of(own, each, f"{where}.{name}") for name, each in value.items()}
    return value


def _within(value: Any, metadata: Iterable[Any]) -> bool:
    """Return whether a number is finite and within its bounds, or a string, list or mapping has an allowed length."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        tests = [BOUNDS[type(each)] + (each,) for each in metadata if type(each) in BOUNDS]
        finite = abs(value) <= sys.float_info.max
        return finite and all(test(value, getattr(bound, name)) for test, name, _, bound in tests)
    if isinstance(value, str | list | tuple | Mapping):
        least = max((each.min_length for each in metadata if isinstance(each, MinLen)), default=0)
        most = min((each.max_length for each in metadata if isinstance(each, MaxLen)), default=len(value))
        return least <= len(value) <= most
    return True


def _check_items(value: Any, metadata: Iterable[Any], where: str) -> None:
    """Check that a list has no item twice if it is annotated with `Distinct`; items need not be hashable."""
    if isinstance(value, list | tuple) and any(isinstance(each, Distinct) for each in metadata):
        for place, each in enumerate(value):
            if each in value[:place]:
                raise InputError(f"{where} has {each} twice; list each item once.")
