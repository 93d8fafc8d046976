"""A training recipe: by what rule, and how far, a step goes. Local training and distillation have the same words.

Their arithmetic is torch's, in `core/client/optimizers.py`; a recipe says what is wanted, and finds what does not fit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from ktpfl_pipeline.core.errors import InputError

BatchNormPolicy = Literal["frozen", "train", "domain_specific"]
"""What BatchNorm normalizes public samples with; `core/client/batch_norm.py` says what each policy does."""
BATCH_NORM: BatchNormPolicy = "domain_specific"
"""The policy where none is set."""


@dataclass(frozen=True)
class RateSchedule:
    """The learning rate of each round, in units of the configured one.

    Attributes:
        kind: ``constant``; ``step``, times `factor` after each `every` rounds; ``cosine``, half a wave from 1 down to
            `floor`, which it would reach in the round after the last.
        warm_up: W, rounds at 1/(W+1), 2/(W+1), ... before all that.
    """

    kind: Literal["constant", "step", "cosine"] = "constant"
    warm_up: int = 0
    every: int = 10
    factor: float = 0.1
    floor: float = 0.0

    def __post_init__(self) -> None:
        """Check that nothing is said of another kind."""
        for name, kind in (("every", "step"), ("factor", "step"), ("floor", "cosine")):
            if kind != self.kind and getattr(self, name) != getattr(RateSchedule, name):
                raise InputError(f"schedule.{name} is of the kind {kind}, and the kind is {self.kind}; leave it out.")

    def at(self, t: int, rounds: int) -> float:
        """Return the factor of round t of `rounds`; round 0, of models that are trained to be evaluated, has 1."""
        if t == 0:
            return 1.0
        if t <= self.warm_up:
            return t / (self.warm_up + 1)
        past = t - 1 - self.warm_up
        if self.kind == "step":
            return self.factor ** (past // self.every)
        if self.kind == "cosine":
            part = min(1.0, past / max(1, rounds - self.warm_up))
            return self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * part)) / 2
        return 1.0


@dataclass(frozen=True)
class Recipe:
    """How steps are taken; as it is, plain SGD.

    Attributes:
        epochs: passes over the samples.
        batch_size: samples a step.
        learning_rate: η, that `schedule` multiplies.
        optimizer: torch's, with its defaults for what is not here: Adam's β are 0.9 and 0.999.
        momentum: of SGD.
        nesterov: whether SGD's momentum looks ahead.
        weight_decay: added to the gradient as ``weight_decay · w``; by AdamW taken from the weights instead.
        optimizer_state: whether each round starts with none, ``reset``, or with the client's of its last, ``kept``.
        schedule: of the learning rate over rounds.
        clip: the largest norm of a model's gradient, over all parameters; None is none.
    """

    epochs: int
    batch_size: int
    learning_rate: float = 0.01
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    optimizer_state: Literal["reset", "kept"] = "reset"
    schedule: RateSchedule = RateSchedule()
    clip: float | None = None

    def __post_init__(self) -> None:
        """Check that what is said of an optimizer is of this one."""
        if self.optimizer != "sgd" and (self.momentum or self.nesterov):
            name = "momentum" if self.momentum else "nesterov"
            raise InputError(
                f"{name} is {getattr(self, name)}, which belongs to sgd; {self.optimizer} has moments of its own: "
                "leave it out, or choose sgd."
            )
        if self.nesterov and not self.momentum:
            raise InputError("nesterov is True and momentum is 0.0, which Nesterov's step needs: set it to 0.9, say.")
        if self.keeps and self.optimizer == "sgd" and not self.momentum:
            raise InputError("optimizer_state is kept, and sgd without momentum has none; set it to reset.")

    @property
    def keeps(self) -> bool:
        """Whether optimizer state crosses rounds."""
        return self.optimizer_state == "kept"

    def rate(self, t: int, rounds: int) -> float:
        """Return the learning rate of round t of `rounds`; see `RateSchedule.at`."""
        return self.learning_rate * self.schedule.at(t, rounds)

    def beyond_plain(self) -> Iterator[str]:
        """Yield each setting that makes a step another than w - η g, with its value: ``momentum is 0.9``."""
        for entry in fields(Recipe):
            value = getattr(self, entry.name)
            if entry.name in ("optimizer", "momentum", "weight_decay", "clip") and value != entry.default:
                yield f"{entry.name} is {value}"

    @property
    def plain(self) -> bool:
        """Whether a step is w - η g."""
        return not any(self.beyond_plain())
