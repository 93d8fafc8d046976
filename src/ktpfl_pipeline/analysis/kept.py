"""How a dataclass becomes plain values, ready for JSON, and is read from them again."""

from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError


class Kept:
    """A dataclass that is kept as plain values, its parts too."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    @cache
    def _reader(cls) -> TypeAdapter[Self]:
        """Return what reads it; making it takes as long as reading many."""
        return TypeAdapter(cls)

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Return what `to_dict` wrote, from JSON too; a ValueError names the first value that cannot be."""
        try:
            return cls._reader().validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
