"""The round loop: cohort, round, evaluation, checkpoint, callback. It knows no method by name."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core import checkpoint, evaluation, memory, privacy
from ktpfl_pipeline.core.client_states import ClientStates
from ktpfl_pipeline.core.errors import DivergedError, InputError, LostError, diverged
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import LAST, LEDGERS, RoundRecord
from ktpfl_pipeline.core.reliability import waiting
from ktpfl_pipeline.core.weights import opened

State = TypeVar("State")
logger = logging.getLogger(__name__)

RECOVERIES = 3
"""How often in a row a run goes back to its checkpoint before it gives up; a round that ends begins the count anew."""


@dataclass(frozen=True)
class Schedule:
    """How long a run is, who takes part, and when what is measured."""

    rounds: int = 30
    participation: float = 1.0  # r: the share of clients in each round's cohort
    evaluate_every: int = 1  # rounds; the last round is always evaluated
    adapt_epochs: tuple[int, ...] = ()  # further epochs after which models are evaluated too, in the last evaluations
    global_samples: int = 0  # of all clients' test samples, at most so many on which models are evaluated at the end
    closing_round: bool = False  # whether all clients take part in the last round

    def share(self, t: int) -> float:
        """Return the share of clients in round t's cohort."""
        return 1.0 if self.closing_round and t == self.rounds else self.participation

    @property
    def evaluations(self) -> list[int]:
        """The rounds that are evaluated."""
        return [t for t in range(1, self.rounds + 1) if t % self.evaluate_every == 0 or t == self.rounds]


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
    """Callbacks for progress and finished rounds. The engine runs the same whoever watches."""

    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    round: Callable[[RoundRecord], None] = lambda record: None


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
        fed: the clients, the data, the operations.
        schedule: rounds, participation, evaluation.
        settings: what defines the run, in plain values; a checkpoint with others is refused.
        checkpoint_file: written after each round, with an atomic replace; None keeps nothing.
        observer: told of progress, and of each finished round after its checkpoint; of the rounds before the
            checkpoint again when a run is resumed.

    Raises:
        DivergedError: if a client's training diverges and `fed.on_divergence` is ``stop``, if all of a cohort
            diverge, or if a model of the server does.
        InputError: if the checkpoint belongs to another run, if the memory does not suffice, or if one round lost
            models with their workers again and again.
    """
    observer = observer or Observer()
    fed.log.progress = observer.progress
    told = losses = 0

    def tell(record: RoundRecord) -> None:
        """Tell of each round once, also where rounds had to be repeated."""
        nonlocal told
        if record.round > told:
            told = record.round
            observer.round(record)

    while True:
        before = told
        try:
            with memory.told("The server", fed):
                return _run(method, fed, schedule, settings or {}, checkpoint_file, tell)
        except LostError as error:
            losses = losses + 1 if told == before else 1
            if losses == RECOVERIES:
                raise InputError(
                    f"Round {told + 1} was begun {RECOVERIES} times, and each time a model was lost with its "
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
    memory, evaluations, pooled = evaluation.Memory(), schedule.evaluations, schedule.global_samples > 0
    state, history, matrices = _restore(method, fed, settings, checkpoint_file)
    adapted = schedule.adapt_epochs
    if adapted and fed.training.privacy is not None:
        logger.warning("training.privacy is set: no model is adapted to be evaluated, which its ε would not cover.")
        adapted = ()
    for record in history:
        tell(record)
    for t in range(len(history) + 1, schedule.rounds + 1):
        fed.log.start_round()
        start = time.perf_counter()
        cohort, absent, late = _turnout(method, sample_cohort(fed, schedule.share(t), t), t, fed, history)
        before, skipped = state, list[int]()
        if cohort:
            state, report, cohort, skipped = _round(method, before, cohort, t, fed)
        else:
            logger.warning("Nobody showed up in round %d; nothing changes.", t)
            report = RoundReport({}, {}, matrices[-1] if matrices else None)
        loss = {phase: _in_order(values, cohort) for phase, values in fed.log.losses.items() if values}
        traffic = {ledger: [getattr(report.traffic[n], ledger) for n in cohort] for ledger in LEDGERS}
        record = RoundRecord(
            round=t, cohort=cohort, loss=loss, traffic=traffic, work=fed.work(cohort), absent=absent, late=late
        )
        if t in evaluations:
            earlier = history[-1].accuracy.get("after_transfer", []) if history else []
            beside = evaluation.Beside(
                adapt=adapted if t in evaluations[-LAST:] else (),
                pool=fed.pooled_test(schedule.global_samples) if pooled and t == evaluations[-1] else None,
            )
            try:
                record = evaluation.evaluate(record, method, before, state, report, fed, memory, earlier, beside)
            except DivergedError as error:  # of a copy that is fine-tuned for it, or of a test loss
                raise diverged(error.found, t) from None
        spent = time.perf_counter() - start
        phases = dict(fed.log.seconds)
        seconds = {**phases, "server": max(0.0, spent - sum(phases.values())), "round": spent}
        record = replace(record, seconds=seconds, diverged=sorted({*skipped, *fed.log.restored}))
        history = [*history, record]
        if fed.training.privacy is not None:
            history[-1] = replace(record, epsilon=_epsilon(fed, history))
        if report.coefficients is not None:
            now = report.coefficients.float().cpu()
            matrices = [*matrices, *[now] * (t - len(matrices))]  # nobody may have shown up in the first rounds
        fed.client_states.end_round()
        if checkpoint_file is not None:
            _save(checkpoint_file, settings, state, history, matrices, fed.client_states)
        tell(history[-1])
    state = replace(state, **_entries(state))  # type: ignore[type-var]
    return Run(state, history, torch.stack(matrices) if matrices else None)


def _round(
    method: Method[State], before: State, cohort: list[int], t: int, fed: Federation
) -> tuple[State, RoundReport, list[int], list[int]]:
    """Run one round, and again without those who diverged in it where the federation says so.

    Every stream is named by client and round, so the round without them is the one in which they were not sampled, to
    the bit. A prediction that is not finite though the weights are leaves nothing to restore: its client sits out.
    Returns state, report, the cohort of the round that ended, and who left it.

    Raises:
        DivergedError: if the run must stop, or if nobody of the cohort is left.
    """
    skipped: list[int] = []
    while True:
        rest = [n for n in cohort if n not in skipped]
        fed.client_states.start_attempt()
        try:
            state, report = method.round(before, rest, t, fed)
        except DivergedError as error:
            found = error.found
            out = [n for n in rest if n in found]
            if fed.on_divergence == "stop" or not out or len(out) == len(rest):
                raise diverged(found, t) from None
        else:
            if fed.log.restored >= set(rest):
                raise diverged(dict.fromkeys(rest, "as all of its cohort; nobody learned anything"), t)
            return state, report, rest, skipped
        for n in out:
            logger.warning("Client %d diverged in round %d (%s); it is skipped in this round.", n, t, found[n])
        skipped += out
        fed.log.start_attempt()


def sample_cohort(fed: Federation, participation: float, t: int) -> list[int]:
    """Return the ids of round t's cohort, max(1, round(rN)) clients, uniformly without replacement, in client order."""
    ids = sorted(fed.by_id)  # the draw is of ids: listing the clients in another order changes nothing
    size = max(1, round(participation * len(ids)))
    chosen = {ids[position] for position in torch.randperm(len(ids), generator=fed.stream("cohort", t))[:size].tolist()}
    return [client.id for client in fed.clients if client.id in chosen]


def _turnout(
    method: Method[Any], sampled: list[int], t: int, fed: Federation, history: list[RoundRecord]
) -> tuple[list[int], list[int], list[int]]:
    """Return who of the sampled clients takes part in round t, who did not show up, and who is late.

    Late predictions are of some use still (`exchange`), so stragglers take part where clients upload them. Where they
    upload something else, a straggler sits out until its last upload has arrived. Where they upload nothing, nobody is
    late.
    """
    absent = fed.reliability.absent(sampled, t, fed.seed)
    here = [n for n in sampled if n not in absent]
    late = [n for n in here if n in fed.straggler_ids]
    if not late or "predictions" in method.exchanges:
        return here, absent, late
    if not method.exchanges:
        return here, absent, []
    late = waiting(late, fed.reliability.stragglers.delay, [record.cohort for record in history])
    return [n for n in here if n not in late], absent, late


def _epsilon(fed: Federation, history: list[RoundRecord]) -> list[float]:
    """Return each client's ε after these rounds; training that diverged has been seen, and counts."""
    settings = fed.training
    assert settings.privacy is not None
    rounds = {n: sum(n in {*record.cohort, *record.diverged} for record in history) for n in fed.by_id}
    epochs = [taken * fed.affordable(n, settings.epochs) for n, taken in rounds.items()]
    samples = [len(client.train) for client in fed.clients]
    return privacy.spent(settings.privacy, samples, epochs, 1, settings.batch_size)


def _in_order(losses: dict[int | str, float], cohort: list[int]) -> list[float]:
    """Return the cohort's losses in cohort order; those of the server's models by their names."""
    ours = [losses[n] for n in cohort if n in losses]  # one that was restored has none
    return ours or [losses[name] for name in sorted(losses, key=str)]


def _save(
    file: Path,
    settings: dict[str, Any],
    state: Any,
    history: list[RoundRecord],
    matrices: list[Tensor],
    client_states: ClientStates,
) -> None:
    content = {
        "settings": settings,
        "state": _entries(state),
        "history": [asdict(record) for record in history],
        "coefficients": matrices,
        "client_states": opened(client_states.kept),
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
    fed.client_states.kept = {} if content is None else content["client_states"]
    if content is None:
        return state, [], []
    restored: State = replace(state, **content["state"])  # type: ignore[type-var]
    history = [RoundRecord(**record) for record in content["history"]]
    return restored, history, [matrix.cpu() for matrix in content["coefficients"]]
