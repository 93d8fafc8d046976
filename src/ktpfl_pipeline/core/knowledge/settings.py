"""What an experiment says of how predictions travel. Plain data."""

from dataclasses import dataclass
from typing import Literal

from ktpfl_pipeline.core.errors import InputError

EncodingName = Literal["float32", "float16", "uint8", "sign", "top_k"]


@dataclass(frozen=True)
class Knowledge:
    """How predictions travel, up and down alike but for `select`; as it is, all of them as float32.

    Attributes:
        encoding: see `encodings`.
        k: of ``top_k``, the classes a sample that are sent.
        cache: D, for how many rounds a prediction of a public sample that was sent is not sent again; 0 is off.
        select: the share of its due predictions that a client uploads: those of which it is most confident.
    """

    encoding: EncodingName = "float32"
    k: int = 3
    cache: int = 0
    select: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether all predictions travel, as they are."""
        return self.encoding == "float32" and self.cache == 0 and self.select == 1.0

    def check(self, classes: int) -> None:
        """Check that so many classes can be sent; else raise `InputError`."""
        if self.encoding == "top_k" and self.k > classes:
            raise InputError(
                f"knowledge.k is {self.k} and there are {classes} classes: set it to {classes} at most, or take "
                "another knowledge.encoding."
            )
