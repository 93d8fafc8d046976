"""What the settings' values are: groups of them, and bounds that many share."""

from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]  # far above, float32 overflows
LearningRate = Annotated[float, Field(ge=0, le=1e6)]
Chance = Annotated[float, Field(ge=0, le=1)]
Epochs = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Clients = Annotated[int, Field(ge=1, le=100_000)]
"""More clients than fit in one process; the bound is checked before anything is made for each of them."""
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


def as_list(value: Any) -> Any:
    """Return a list as it is, and a single value as a list of one."""
    return [value] if isinstance(value, str | int | float) else value


def as_names(value: Any) -> Any:
    """Return the names in a text, between them a +, because Kedro splits --params at commas; a list as it is."""
    return value.split("+") if isinstance(value, str) else value


def as_seeds(value: Any) -> Any:
    """Return the whole numbers in a text, between them a +, as with names; a single one as a list of one."""
    parts = value.split("+") if isinstance(value, str) else []
    return [int(part) for part in parts] if parts and all(map(str.isdecimal, parts)) else as_list(value)


WORDS = {"schedule": "kind", "knowledge": "encoding"}
"""Groups of settings that a text may stand for: it is the value of this one, and all others have their defaults."""


def spelt_out(group: str, value: Any) -> Any:
    """Return a text that stands for a group of settings as that group, and any other value as it is."""
    return {WORDS[group]: value} if group in WORDS and isinstance(value, str) else value


def OrWord(group: str) -> BeforeValidator:
    """Let a text stand for a group of settings; see `WORDS`."""
    return BeforeValidator(partial(spelt_out, group))


def each_once(values: Any) -> Any:
    """Return what is given, if it is no list with a value twice; values may be of any type."""
    for place, value in enumerate(values if isinstance(values, list) else ()):
        if value in values[:place]:
            raise ValueError(f"has {value} twice; give each once")
    return values


EachOnce = AfterValidator(each_once)
OneOrMore = BeforeValidator(as_list)
"""A single value stands for a list of one."""
Seeds = Annotated[list[Seed], BeforeValidator(as_seeds), Field(min_length=1), EachOnce]
Names = Annotated[list[str], BeforeValidator(as_names), Field(min_length=1), EachOnce]


class Settings(BaseModel):
    """A group of settings: no key that it does not know, no value of another type, and nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
