"""The measurements of a round and of its traffic; `core/client/measures.py` has the measures of one model."""

from dataclasses import dataclass, field
from typing import Literal, get_args

AFTER_LOCAL, AFTER_TRANSFER = "after_local", "after_transfer"
"""The evaluation points on clients' test samples: after local training, and after the transfer of knowledge."""
VALIDATION = "validation"
"""The evaluation point on clients' validation samples, after transfer."""
LAST = 5
"""The largest number of last evaluations whose mean is a run's final value."""
CHOSEN = "chosen"
"""The evaluation point on clients' test samples of the models that clients choose to keep, see `settings.Choice`."""
ADAPTED = "adapted_"
"""The prefix of evaluation points after extra local epochs; the number of these epochs follows."""
Leading = Literal["balanced_accuracy", "macro_f1", "auc"]
LEADING = get_args(Leading)
"""Measures of the models after transfer that a report may use as its headline instead of accuracy."""


@dataclass(frozen=True)
class Traffic:
    """The bytes that one client sends (``up``, to the server) and receives (``down``) in one round, by category."""

    predictions_up: int = 0  #: soft predictions of public samples
    predictions_down: int = 0
    prototypes_up: int = 0  #: mean features of classes
    prototypes_down: int = 0
    similarities_up: int = 0  #: similarities of the features of public samples
    similarities_down: int = 0
    coefficients_up: int = 0  #: weights or gains that a client computed for other clients' models, or its own loss
    coefficients_down: int = 0
    parameters_up: int = 0  #: parameters of models, including BatchNorm's statistics
    parameters_down: int = 0
    public_down: int = 0  #: public samples, or indices of them

    def __add__(self, other: "Traffic") -> "Traffic":
        """Return the sum of two traffics in each category."""
        return Traffic(**{kind: size + getattr(other, kind) for kind, size in vars(self).items()})

    @property
    def knowledge_up(self) -> int:
        """Bytes from the client that are neither models nor public data."""
        return self.predictions_up + self.prototypes_up + self.similarities_up + self.coefficients_up

    @property
    def knowledge_down(self) -> int:
        """Bytes to the client that are neither models nor public data."""
        return self.predictions_down + self.prototypes_down + self.similarities_down + self.coefficients_down


LEDGERS = ("knowledge_up", "knowledge_down", "parameters_up", "parameters_down", "public_down")
"""The totals of traffic that history and reports keep: three ledgers, two of them for each direction."""
HAPPENED = ("diverged", "absent", "late", "stale")
"""Events that may happen to clients in a round: names of the fields of `RoundRecord` that list these clients."""


@dataclass(frozen=True)
class RoundRecord:
    """One finished round in plain numbers, as the report, the tracker and the checkpoint store it."""

    round: int  #: t, from 1
    cohort: list[int]  #: ids of the clients that took part; empty where none did
    #: accuracy by evaluation point, one value in 0..1 per client of the federation, in order; empty in a round that was
    #: not evaluated. ``after_local`` and ``after_transfer`` are on the test split, ``validation`` is on the validation
    #: split after transfer. The last evaluations also have ``adapted_<e>``: on the test split, after transfer and e
    #: extra local epochs. The models of these extra epochs are discarded.
    accuracy: dict[str, list[float]] = field(default_factory=dict)
    #: mean loss by name of the phase. ``train`` and ``distill`` have one value per cohort member, in cohort order.
    #: ``fuse`` has one per model of the server, in the order of their names. ``test`` has one per client of the
    #: federation, after transfer, in evaluated rounds. A client that was restored in a phase has no loss in that phase.
    loss: dict[str, list[float]] = field(default_factory=dict)
    #: other measures of the models after transfer, in evaluated rounds, by name: `MEASURES` on the test split of each
    #: client, and ``global_accuracy`` on test samples of all clients (`pooled_test`). One value in 0..1 per client of
    #: the federation, in order; NaN if a measure is undefined for a client's samples, such as the AUC of one class.
    measures: dict[str, list[float]] = field(default_factory=dict)
    #: bytes by ledger, one value per cohort member, in cohort order
    traffic: dict[str, list[int]] = field(default_factory=dict)
    #: the computation of each cohort member, in cohort order: backpropagated ``samples``, and ``flops`` for them
    work: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: wall time by phase
    #: ids of the clients whose training diverged. A client that was skipped for this reason is not in `cohort`; a
    #: client that was restored continued with its weights from before that training
    diverged: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)  #: ids of the clients that were sampled but dropped out
    #: ids of sampled stragglers. A straggler is in the cohort if it uploads an old model's predictions, and outside it
    #: if its last upload has not arrived yet. Real clients that dropped out during the round are included
    late: list[int] = field(default_factory=list)
    #: with real clients, the reason why each client is absent or late, by its id as text
    reasons: dict[str, str] = field(default_factory=dict)
    #: ids of real clients that did not answer when models were evaluated. Their values are those of an earlier
    #: evaluation, or NaN if there is none
    stale: list[int] = field(default_factory=list)
    #: with private local training, the ε that each client of the federation, in order, has spent so far
    epsilon: list[float] = field(default_factory=list)
    #: the method's own numbers by name; see `RoundReport`
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of clients by event: ``diverged``, ``absent``, ``late`` and ``stale``."""
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
    accuracy: dict[int, list[float]]  #: (M,) their test accuracies, 0..1, by the number of epochs of local training
    #: test accuracies of the N - M trained clients, in the federation's order, by the number of extra local epochs
    there: dict[int, list[float]]
    #: bytes of joining by ledger, summed over newcomers and the trained clients that sent something for it
    traffic: dict[str, int]


def mean(values: list[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return sum(values) / len(values)
