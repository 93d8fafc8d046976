"""Settings of the exchange of predictions."""

from dataclasses import dataclass
from typing import Literal

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import Count, Fraction, Natural

EncodingName = Literal["float32", "float16", "uint8", "sign", "top_k"]


@dataclass(frozen=True)
class Knowledge:
    """How predictions are sent, in both directions; by default all of them as float32.

    Attributes:
        encoding: ``float32`` or ``float16``; ``uint8``, 8 bits; ``sign``, 1 bit, with error feedback; ``top_k``, only
            the most likely classes. The counted bytes are those of what is sent. The name of an encoding may be given
            in place of the group: ``knowledge: uint8``.
        k: classes sent per sample; only with ``top_k``.
        cache: D, the number of rounds for which a prediction that was sent is not sent again; 0 sends all.
        select: the share of its predictions that a client uploads: those in which its model is most confident.
    """

    encoding: EncodingName = "float32"
    k: Count = 3
    cache: Natural = 0
    select: Fraction = 1.0

    @property
    def plain(self) -> bool:
        """Whether all predictions travel, as they are."""
        return self.encoding == "float32" and self.cache == 0 and self.select == 1.0

    def check(self, classes: int) -> None:
        """Check that so many classes can be sent; else raise `InputError`."""
        if self.encoding == "top_k" and self.k > classes:
            raise InputError(
                f"knowledge.k is {self.k}, but there are {classes} classes: set it to at most {classes}, or choose "
                "another knowledge.encoding."
            )
