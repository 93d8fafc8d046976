"""A training recipe: optimizer, learning rate and schedule, the same settings for local training and distillation.

The arithmetic is torch's, in `core/client/sgd.py`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Literal

from ktpfl_pipeline.core.validation import (
    Chance,
    Count,
    Fraction,
    Natural,
    NotNegative,
    Part,
    Positive,
    Reads,
    changed,
    spelt_out,
)

BatchNormPolicy = Literal["frozen", "train", "domain_specific"]
"""What BatchNorm normalizes public samples with; `core/client/batch_norm.py` says what each policy does."""
BATCH_NORM: BatchNormPolicy = "domain_specific"
"""The policy where none is set."""


def batch_sizes(samples: int, size: int) -> list[int]:
    """Return the number of samples in each batch of an epoch.

    The last, shorter batch is kept. A single sample left over joins the batch before it, because BatchNorm cannot train
    on one sample.
    """
    whole, rest = divmod(samples, size)
    if rest == 1 < size and whole:
        return [size] * (whole - 1) + [size + 1]
    return [size] * whole + [rest] * (rest > 0)


@dataclass(frozen=True)
class RateSchedule:
    """The learning rate of each round, as a factor of the configured rate.

    Attributes:
        kind: how the learning rate changes over rounds: ``constant``; ``step``, multiplied by `factor` after every
            `every` rounds; ``cosine``, half a cosine wave from 1 down to `floor`, reached in the round after the last.
            The name of a kind may be given in place of the group: ``schedule: cosine``.
        warm_up: W, the number of first rounds with the factors 1/(W+1), 2/(W+1), …
        every: rounds between two steps; only with ``step``.
        factor: what each step multiplies the learning rate by; only with ``step``.
        floor: the lowest factor; only with ``cosine``.
    """

    kind: Literal["constant", "step", "cosine"] = "constant"
    warm_up: Natural = 0
    every: Count = 10
    factor: Fraction = 0.1
    floor: Chance = 0.0

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each setting that belongs to another kind of schedule."""
        for name, kind in (("every", "step"), ("factor", "step"), ("floor", "cosine")):
            if kind != self.kind and name in changed(self):
                yield f"schedule.{name} belongs to the kind {kind}, but schedule.kind is {self.kind}: remove it."

    def at(self, t: int, rounds: int) -> float:
        """Return the factor of round t of `rounds`; round 0, of models trained only for evaluation, has 1."""
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
    """How a model is trained; the defaults are plain SGD.

    Attributes:
        epochs: passes over the samples.
        batch_size: samples per step; the last, shorter batch of an epoch is used too.
        steps: the number of steps in a round, in as many passes as they take; replaces `epochs`. null: all steps of
            `epochs`.
        learning_rate: η, multiplied by `schedule`.
        optimizer: torch's optimizer, with torch's defaults for all other arguments (Adam's β are 0.9 and 0.999).
        momentum: momentum of ``sgd``; 0.9 is common.
        nesterov: whether ``sgd`` uses Nesterov momentum.
        weight_decay: added to the gradient as ``weight_decay · w``; ``adamw`` subtracts it from the weights instead.
        optimizer_state: the optimizer's moments at the start of a round: ``reset``, empty; ``kept``, those that the
            client had after its last round.
        schedule: the learning rate over rounds.
        clip: the largest norm of a model's gradient over all parameters; null does not clip.
    """

    epochs: Natural
    batch_size: Count
    learning_rate: NotNegative = 0.01
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: Part = 0.0
    nesterov: bool = False
    weight_decay: NotNegative = 0.0
    optimizer_state: Literal["reset", "kept"] = "reset"
    schedule: Annotated[RateSchedule, Reads(partial(spelt_out, "schedule"))] = RateSchedule()
    clip: Positive | None = None
    steps: Count | None = None

    def conflicts(self) -> Iterator[str]:
        """Yield a sentence for each pair of settings that exclude each other."""
        yield from self.schedule.conflicts()
        if self.optimizer != "sgd" and (self.momentum or self.nesterov):
            name = "momentum" if self.momentum else "nesterov"
            yield (
                f"{name} is {getattr(self, name)}, which belongs to sgd, but the optimizer is {self.optimizer}: remove "
                "it, or choose sgd."
            )
        elif self.nesterov and not self.momentum:
            yield "nesterov is true but momentum is 0: set momentum, for example to 0.9, or remove nesterov."
        if self.keeps and self.optimizer == "sgd" and not self.momentum:
            yield "optimizer_state is kept, but sgd without momentum has no state: set it to reset."

    @property
    def keeps(self) -> bool:
        """Whether optimizer state crosses rounds."""
        return self.optimizer_state == "kept"

    def passes(self, samples: int) -> int:
        """Return the number of passes over `samples` samples in a round; the last one ends with the last of `steps`."""
        return self.epochs if self.steps is None else -(-self.steps // len(batch_sizes(samples, self.batch_size)))

    def rate(self, t: int, rounds: int) -> float:
        """Return the learning rate of round t of `rounds`; see `RateSchedule.at`."""
        return self.learning_rate * self.schedule.at(t, rounds)

    def beyond_plain(self) -> Iterator[str]:
        """Yield each setting that makes a step differ from w - η g, with its value: ``momentum is 0.9``."""
        for entry in fields(Recipe):
            value = getattr(self, entry.name)
            if entry.name in ("optimizer", "momentum", "weight_decay", "clip") and value != entry.default:
                yield f"{entry.name} is {value}"

    @property
    def plain(self) -> bool:
        """Whether a step is w - η g."""
        return not any(self.beyond_plain())
