"""The round loop: cohort, round, evaluation, checkpoint, callback. It knows no method by name."""

import logging
import math
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core import checkpoint
from ktpfl_pipeline.core.client import dp_sgd
from ktpfl_pipeline.core.errors import DivergedError, InputError, LostError, diverged
from ktpfl_pipeline.core.federation import Federation, Split
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import LEDGERS, Evaluation, RoundRecord
from ktpfl_pipeline.core.weights import Handle, Models, Params, opened, select

State = TypeVar("State")
logger = logging.getLogger(__name__)

EVALUATED_AT_ONCE = 20
"""Clients whose models are there at once for an evaluation: memory, not results."""
RECOVERIES = 3
"""How often in a row a run goes back to its checkpoint before it gives up; a round that ends begins the count anew."""


@dataclass(frozen=True)
class Schedule:
    """How long a run is and who takes part."""

    rounds: int = 30
    participation: float = 1.0  # r: the share of clients in each round's cohort
    evaluate_every: int = 1  # rounds; the last round is always evaluated


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        state: the method's state after the last round.
        history: one record a round.
        coefficients: (rounds, N, N) float32, the coefficient matrix after each round; None without one.
    """

    state: Any
    history: list[RoundRecord]
    coefficients: Tensor | None


@dataclass(frozen=True)
class Observer:
    """Who is told what, while it happens. The engine runs the same whoever watches."""

    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    round: Callable[[RoundRecord], None] = lambda record: None


@dataclass
class _Memory:
    """The last evaluation of each client's model, so that a model that did not change is not evaluated again.

    A model is its tensors, or the handle on it. They are remembered weakly: one that was made to be evaluated may go
    afterwards.
    """

    known: dict[tuple[int, Split], tuple[list["weakref.ref[Any]"], Evaluation]] = field(default_factory=dict)

    def evaluate(self, fed: Federation, models: Models, split: Split) -> dict[int, Evaluation]:
        fresh = {n: params for n, params in models.items() if not self._knows(n, split, params)}
        for n, evaluation in fed.evaluate(fresh, split).items():
            self.known[n, split] = ([weakref.ref(part) for part in _parts(fresh[n])], evaluation)
        return {n: self.known[n, split][1] for n in models}

    def _knows(self, n: int, split: Split, params: Params) -> bool:
        seen = [reference() for reference in self.known.get((n, split), ([], None))[0]]
        parts = _parts(params)
        return len(seen) == len(parts) and all(a is b for a, b in zip(seen, parts, strict=True))


def _parts(params: Params) -> list[Any]:
    """Return what makes a model that one; where it lives elsewhere it is not opened for this."""
    return [params] if isinstance(params, Handle) else list(params.values())


@dataclass
class _Once:
    """Tells an observer of each round once, also where rounds had to be repeated.

    Attributes:
        observer: who is told.
        told: the last round that it was told of.
    """

    observer: Observer
    told: int = 0

    def __call__(self, record: RoundRecord) -> None:
        if record.round > self.told:
            self.told = record.round
            self.observer.round(record)


def run(
    method: Method[State],
    fed: Federation,
    schedule: Schedule,
    *,
    settings: dict[str, Any] | None = None,
    checkpoint_file: Path | None = None,
    observer: Observer | None = None,
) -> Run:
    """Run `method` on `fed` for all rounds, from the last checkpoint where there is one.

    Args:
        method: what happens in a round.
        fed: the clients, the data, the verbs.
        schedule: rounds, participation, evaluation.
        settings: what defines the run, in plain values; a checkpoint with others is refused.
        checkpoint_file: written after each round, with an atomic replace; None keeps nothing.
        observer: told of progress, and of each finished round after its checkpoint; of the rounds before the
            checkpoint again when a run is resumed.

    Returns:
        The final state, one record a round, and the coefficient matrix over the rounds.

    Raises:
        DivergedError: if a client's training diverges and `fed.on_divergence` is ``stop``, if all of a cohort
            diverge, or if a model of the server does.
        InputError: if the checkpoint belongs to another run, or one round lost models with their workers again and
            again.
    """
    observer = observer or Observer()
    tell = _Once(observer)
    fed.executor.progress = observer.progress
    losses = 0
    while True:
        before = tell.told
        try:
            return _run(method, fed, schedule, settings or {}, checkpoint_file, tell)
        except LostError as error:
            losses = losses + 1 if tell.told == before else 1
            if losses == RECOVERIES:
                raise InputError(
                    f"Round {tell.told + 1} was begun {RECOVERIES} times, and each time a model was lost with its "
                    f"worker, the last time so: {error} See what ends the machines, and give the same command again."
                ) from error
            logger.warning("%s Going back to %s.", error, "the last checkpoint" if checkpoint_file else "round 1")


def _run(
    method: Method[State],
    fed: Federation,
    schedule: Schedule,
    settings: dict[str, Any],
    checkpoint_file: Path | None,
    tell: Callable[[RoundRecord], None],
) -> Run:
    """Do what `run` says, as long as no model is lost; every stream is named, so what is repeated is the same."""
    memory = _Memory()
    state, history, matrices = _restore(method, fed, settings, checkpoint_file)
    for record in history:
        tell(record)
    for t in range(len(history) + 1, schedule.rounds + 1):
        fed.executor.start_round()
        start = time.perf_counter()
        cohort = sample_cohort(fed, schedule.participation, t)
        before = state
        state, report, cohort, skipped = _round(method, before, cohort, t, fed)
        loss = {phase: _in_order(values, cohort) for phase, values in fed.executor.losses.items() if values}
        record = RoundRecord(round=t, cohort=cohort, loss=loss, traffic=_ledgers(report, cohort))
        if t % schedule.evaluate_every == 0 or t == schedule.rounds:
            earlier = history[-1].accuracy.get("after_transfer", []) if history else []
            try:
                record = _evaluate(record, method, before, state, report, fed, memory, earlier)
            except DivergedError as error:  # of a copy that is fine-tuned to be evaluated
                raise diverged(error.found, t) from None
            _refuse_infinite_test_loss(record, fed)
        spent = time.perf_counter() - start
        phases = dict(fed.executor.seconds)
        seconds = {**phases, "server": max(0.0, spent - sum(phases.values())), "round": spent}
        record = replace(record, seconds=seconds, diverged=sorted({*skipped, *fed.executor.restored}))
        history = [*history, record]
        if fed.training.privacy is not None:
            history[-1] = replace(record, epsilon=dp_sgd.spent(fed, ({*r.cohort, *r.diverged} for r in history)))
        if report.coefficients is not None:
            matrices = [*matrices, report.coefficients.float().cpu()]
        if checkpoint_file is not None:
            _save(checkpoint_file, settings, state, history, matrices)
        tell(history[-1])
    state = replace(state, **_entries(state))  # type: ignore[type-var]
    return Run(state, history, torch.stack(matrices) if matrices else None)


def _round(
    method: Method[State], before: State, cohort: list[int], t: int, fed: Federation
) -> tuple[State, RoundReport, list[int], list[int]]:
    """Run one round, and again without those who diverged in it where the federation says so.

    Every stream is named by client and round, so the round without them is the one in which they were not sampled, to
    the bit. A prediction that is not finite though the weights are leaves nothing to restore: its client sits out.

    Returns:
        The state, the report, the cohort of the round that ended, and who left it.

    Raises:
        DivergedError: if the run must stop, or if nobody of the cohort is left.
    """
    skipped: list[int] = []
    while True:
        rest = [n for n in cohort if n not in skipped]
        try:
            state, report = method.round(before, rest, t, fed)
        except DivergedError as error:
            found = error.found
            out = [n for n in rest if n in found]
            if fed.on_divergence == "stop" or not out or len(out) == len(rest):
                raise diverged(found, t) from None
        else:
            if fed.executor.restored >= set(rest):
                raise diverged(dict.fromkeys(rest, "as all of its cohort; nobody learned anything"), t)
            return state, report, rest, skipped
        for n in out:
            logger.warning("Client %d diverged in round %d (%s); it sits this round out.", n, t, found[n])
        skipped += out
        fed.executor.start_attempt()


def sample_cohort(fed: Federation, participation: float, t: int) -> list[int]:
    """Return the ids of round t's cohort, max(1, round(rN)) clients, uniformly without replacement, in client order."""
    ids = sorted(fed.by_id)  # the draw is of ids: listing the clients in another order changes nothing
    size = max(1, round(participation * len(ids)))
    chosen = {ids[position] for position in torch.randperm(len(ids), generator=fed.stream("cohort", t))[:size].tolist()}
    return [client.id for client in fed.clients if client.id in chosen]


def _evaluate(
    record: RoundRecord,
    method: Method[State],
    before: State,
    after: State,
    report: RoundReport,
    fed: Federation,
    memory: _Memory,
    earlier: list[float],
) -> RoundRecord:
    """Evaluate every client, sampled or not, after local training and after the knowledge transfer.

    A few clients at a time: models that `personal` makes and nobody keeps must not all be there at once. `earlier` is
    the accuracy of all clients at the end of the round before, where that was evaluated: an absent client has it still.
    """
    everyone = [client.id for client in fed.clients]
    stands = dict(zip(everyone, earlier, strict=bool(earlier)))
    validated = all(len(client.validation) for client in fed.clients)
    points = ("after_local", "after_transfer", *(("validation",) if validated else ()))
    accuracy: dict[str, list[float]] = {point: [] for point in points}
    loss: list[float] = []
    for start in range(0, len(everyone), EVALUATED_AT_ONCE):
        some = everyone[start : start + EVALUATED_AT_ONCE]
        absent = [n for n in some if n not in report.after_local and n not in stands]
        stored = method.personal(before, absent, fed) if absent else {}
        trained = select({**stored, **report.after_local}, [n for n in some if n in stored or n in report.after_local])
        local = {n: found.accuracy for n, found in memory.evaluate(fed, trained, "test").items()}
        accuracy["after_local"] += [local[n] if n in local else stands[n] for n in some]
        personal = method.personal(after, some, fed)
        test = memory.evaluate(fed, personal, "test")
        accuracy["after_transfer"] += [test[n].accuracy for n in some]
        loss += [test[n].loss for n in some]
        if validated:
            validation = memory.evaluate(fed, personal, "validation")
            accuracy["validation"] += [validation[n].accuracy for n in some]
    return replace(record, accuracy=accuracy, loss={**record.loss, "test": loss})


def _in_order(losses: dict[int | str, float], cohort: list[int]) -> list[float]:
    """Return the cohort's losses in cohort order; those of the server's models by their names."""
    ours = [losses[n] for n in cohort if n in losses]  # one that was restored has none
    return ours or [losses[name] for name in sorted(losses, key=str)]


def _refuse_infinite_test_loss(record: RoundRecord, fed: Federation) -> None:
    """Refuse models whose weights are finite and whose loss is not, whatever `fed.on_divergence` says.

    Whose fault it is cannot be told, where models are mixed; and evaluating must change nothing.
    """
    found: dict[int | str, str] = {
        n: f"its test loss is {loss}"
        for n, loss in zip(fed.by_id, record.loss["test"], strict=True)
        if not math.isfinite(loss)
    }
    if found:
        raise diverged(found, record.round)


def _ledgers(report: RoundReport, cohort: list[int]) -> dict[str, list[int]]:
    return {ledger: [getattr(report.traffic[n], ledger) for n in cohort] for ledger in LEDGERS}


def _save(file: Path, settings: dict[str, Any], state: Any, history: list[RoundRecord], matrices: list[Tensor]) -> None:
    content = {
        "settings": settings,
        "state": _entries(state),
        "history": [asdict(record) for record in history],
        "coefficients": matrices,
    }
    checkpoint.save(file, content)


def _entries(state: Any) -> dict[str, Any]:
    """Return what crosses rounds by name, with all models brought here."""
    return {entry.name: opened(getattr(state, entry.name)) for entry in fields(state)}


def _restore(
    method: Method[State], fed: Federation, settings: dict[str, Any], file: Path | None
) -> tuple[State, list[RoundRecord], list[Tensor]]:
    state = method.init(fed)
    content = checkpoint.load(file, settings, fed.device) if file is not None else None
    if content is None:
        return state, [], []
    restored: State = replace(state, **content["state"])  # type: ignore[type-var]
    return (
        restored,
        [RoundRecord(**record) for record in content["history"]],
        [matrix.cpu() for matrix in content["coefficients"]],
    )
