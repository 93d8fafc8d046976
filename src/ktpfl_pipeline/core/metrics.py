"""What is measured of a round, and of the wire; `core/client/measures.py` has what is measured of a model."""

from dataclasses import dataclass, field
from typing import Literal, get_args

AFTER_LOCAL, AFTER_TRANSFER = "after_local", "after_transfer"
"""The evaluation points on clients' test samples, before and after knowledge came back in a round."""
VALIDATION = "validation"
"""The evaluation point on clients' validation samples, after transfer."""
LAST = 5
"""Evaluations whose mean is the final value of a run, at most."""
ADAPTED = "adapted_"
"""What the evaluation points after further epochs begin with; their number follows."""
Leading = Literal["balanced_accuracy", "macro_f1", "auc"]
LEADING = get_args(Leading)
"""Measures of the models after transfer that may lead a report instead of accuracy."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one client in one round by category; up is from the client to the server."""

    predictions_up: int = 0  #: soft predictions of public samples
    predictions_down: int = 0
    prototypes_up: int = 0  #: mean features of classes
    prototypes_down: int = 0
    coefficients_up: int = 0  #: weights or gains that a client computed for other clients' models
    coefficients_down: int = 0
    parameters_up: int = 0  #: parameters of models, including BatchNorm's statistics
    parameters_down: int = 0
    public_down: int = 0  #: public samples, or indices of them

    def __add__(self, other: "Traffic") -> "Traffic":
        """Return the bytes of both, kind by kind."""
        return Traffic(**{kind: size + getattr(other, kind) for kind, size in vars(self).items()})

    @property
    def knowledge_up(self) -> int:
        """Bytes up that are neither models nor public data."""
        return self.predictions_up + self.prototypes_up + self.coefficients_up

    @property
    def knowledge_down(self) -> int:
        """Bytes down that are neither models nor public data."""
        return self.predictions_down + self.prototypes_down + self.coefficients_down


LEDGERS = ("knowledge_up", "knowledge_down", "parameters_up", "parameters_down", "public_down")
"""The three ledgers, by direction, that history and reports keep."""
HAPPENED = ("diverged", "absent", "late", "stale")
"""What may happen to clients in a round: the fields of `RoundRecord` that list them."""


@dataclass(frozen=True)
class RoundRecord:
    """One finished round, in plain numbers: what the report, the tracker and the checkpoint keep of it."""

    round: int  #: t, from 1
    cohort: list[int]  #: ids of the clients that took part; empty where none did
    #: by evaluation point, one value in 0..1 per client of the federation, in order; empty in a round that was not
    #: evaluated. ``after_local`` and ``after_transfer`` are on the test split, ``validation`` is on the validation
    #: split after transfer. The last evaluations also have ``adapted_<e>``: on the test split, after transfer and e
    #: extra local epochs, which are discarded.
    accuracy: dict[str, list[float]] = field(default_factory=dict)
    #: mean loss of the phase by name. ``train`` and ``distill`` have one value per cohort member, in cohort order.
    #: ``fuse`` has one per model of the server, in the order of their names. ``test`` has one per client of the
    #: federation, after transfer, in evaluated rounds. A client that was restored in a phase has no loss there.
    loss: dict[str, list[float]] = field(default_factory=dict)
    #: what else is known of the models after transfer on their clients' test splits, in evaluated rounds, by name:
    #: `MEASURES`; and ``global_accuracy``, on all clients' test splits. One value in 0..1 per client of the federation,
    #: in order; NaN where a client's samples do not have the measure.
    measures: dict[str, list[float]] = field(default_factory=dict)
    #: bytes by ledger, one value per cohort member, in cohort order
    traffic: dict[str, list[int]] = field(default_factory=dict)
    #: what each cohort member computed, in cohort order: ``samples`` backpropagated, and their ``flops``
    work: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: wall time by phase
    #: ids of the clients whose training diverged, and that sat the round out for it (they are not in `cohort`) or were
    #: given back their weights of before
    diverged: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)  #: ids of the clients that were sampled and did not show up
    #: ids of stragglers that were sampled: in the cohort, with stale predictions, or outside it, because their last
    #: upload was still on its way; real clients that dropped out during the round are included
    late: list[int] = field(default_factory=list)
    #: with real clients, the reason why each client is absent or late, by its id as text
    reasons: dict[str, str] = field(default_factory=dict)
    #: ids of real clients that did not answer when models were evaluated: their values come from an earlier evaluation,
    #: or are NaN if there is none
    stale: list[int] = field(default_factory=list)
    #: with private local training, what each client of the federation, in order, has spent so far
    epsilon: list[float] = field(default_factory=list)
    #: numbers that the method reports of itself; see `RoundReport`
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of the clients that something happened to, by what: ``diverged``, ``absent``, ``late``, ``stale``."""
        return {name: len(getattr(self, name)) for name in HAPPENED}

    @property
    def sampled(self) -> set[int]:
        """Ids of the clients that were drawn for the round, whether they then took part or not."""
        return {*self.cohort, *self.diverged, *self.absent, *self.late}


@dataclass(frozen=True)
class Newcomers:
    """The results of newcomers."""

    clients: list[int]  #: M ids
    architectures: list[str]  #: (M,) their architectures
    accuracy: dict[int, list[float]]  #: by epochs of local training, (M,) their test accuracies, 0..1
    #: the same for the N - M trained clients, after as many extra epochs, in the federation's order
    there: dict[int, list[float]]
    traffic: dict[str, int]  #: bytes by category that joining took, of newcomers and of the clients that were asked


def mean(values: list[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return sum(values) / len(values)
