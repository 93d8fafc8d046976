"""The round loop: cohort, round, evaluation, checkpoint, callback. The loop does not depend on a particular method."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ktpfl_pipeline.core import compatibility, privacy
from ktpfl_pipeline.core.errors import ClientsMissing, DivergedError, InputError, LostError, named
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine.resources import processor, used_up_by
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import LAST, LEDGERS, RoundRecord
from ktpfl_pipeline.core.rounds import checkpoint, contract, early_stopping
from ktpfl_pipeline.core.rounds.cohort import sample, takes_late, turnout
from ktpfl_pipeline.core.rounds.evaluation import Ended, Evaluator
from ktpfl_pipeline.core.warnings import Warned, collected, recall, warn
from ktpfl_pipeline.core.weights import Handle, kept, opened, stored
from ktpfl_pipeline.core.work import BACKPROPAGATION

State = TypeVar("State")
logger = logging.getLogger(__name__)

RECOVERIES = 3
"""The number of times that a run may lose a model before it stops. A finished round resets the count."""


@dataclass(frozen=True)
class Schedule:
    """How long a run is, which clients take part, and when models are evaluated."""

    rounds: int  #: T, communication rounds
    participation: float = 1.0  #: r, the share of clients in each round's cohort
    evaluate_every: int = 1  #: rounds between evaluations
    adapt_epochs: tuple[int, ...] = ()  #: extra epochs after which models are evaluated too, in the last evaluations
    global_samples: int = 0  #: the largest number of pooled test samples for the evaluation at the end
    closing_round: bool = False  #: whether all clients take part in the last round
    patience: int | None = None  #: evaluations without improvement after which a run ends; see `early_stopping`
    evaluate_last: int = 1  #: the number of last rounds that are evaluated whatever `evaluate_every` is

    @property
    def evaluations(self) -> list[int]:
        """The rounds that are evaluated."""
        often = self.rounds - self.evaluate_last
        return [t for t in range(1, self.rounds + 1) if t % self.evaluate_every == 0 or t > often]

    @property
    def full_evaluations(self) -> list[int]:
        """The rounds of `evaluations` with adaptation: the last ones, or all if early stopping may choose any."""
        return self.evaluations[-LAST:] if self.patience is None else self.evaluations


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    state: Any  #: the method's state after the last round; with early stopping, after the best one
    rounds: int  #: the number of the round that `state` belongs to
    history: list[RoundRecord]  #: one record per round
    #: (rounds, N, N) float32, the coefficient matrix after each round up to `rounds`; None if there is no matrix
    coefficients: Tensor | None
    warnings: tuple[Warned, ...] = ()  #: those of the federation, then those of the run, including its earlier parts


@dataclass(frozen=True)
class Observer:
    """Callbacks for progress and finished rounds. They do not affect results."""

    progress: Callable[[str, int, int], None] = lambda phase, done, total: None
    round: Callable[[RoundRecord], None] = lambda record: None


def run(
    method: Method[State],
    fed: Federation,
    schedule: Schedule,
    *,
    settings: dict[str, Any] | None = None,
    checkpoint_file: Path | None = None,
    observer: Observer = Observer(),
) -> Run:
    """Run `method` on `fed` for all rounds, starting from the last checkpoint if there is one.

    The checkpoint is replaced atomically after each round. The observer is told the progress, and each finished round
    after its checkpoint is written; in a resumed run, also the rounds before the checkpoint. `settings` defines the run
    in plain values; a checkpoint with different settings raises InputError.

    Raises:
        DivergedError: if a client's training diverges and `fed.on_divergence` is ``stop``, if all clients of
            a cohort diverge, or if a model of the server diverges.
        InputError: if the method and the settings exclude each other, a client has no samples to train or to test on,
            or the checkpoint belongs to another run; if the method returns values that cannot be used or stored. If
            the memory does not suffice, or models of one round are repeatedly lost with their workers.
    """
    if wrong := compatibility.problems(method, fed):
        raise InputError(" ".join(wrong))
    for client in fed.clients:
        if empty := [name for name in ("train", "test") if not len(getattr(client, name))]:
            raise InputError(f"{named(client.id, fed.names)} has no {empty[0]} samples: give it some, or leave it out.")
    fed.claim()  # the server computes in this precision too, before any client does
    fed.current.progress = observer.progress
    fed.current.late_predictions = bool(fed.straggler_ids) and takes_late(method)
    told = losses = 0

    def tell(record: RoundRecord) -> None:
        """Report each round once, even if the round had to be repeated."""
        nonlocal told
        if record.round > told:
            told = record.round
            observer.round(record)

    while True:
        before = told
        try:
            with used_up_by("The server", fed), collected() as found:
                recall(fed.warnings)
                made = _run(method, fed, schedule, settings or {}, checkpoint_file, tell, found)
                return replace(made, warnings=tuple(found))
        except LostError as error:
            losses = losses + 1 if told == before else 1
            if losses == RECOVERIES:
                raise InputError(
                    f"Round {told + 1} was started {RECOVERIES} times, and each time a model was lost with its "
                    f"worker. The last error: {error} Find out why the machines stop, and give the same command again."
                ) from error
            logger.warning(
                "%s The run goes back to %s.", error, "the last checkpoint" if checkpoint_file else "round 1"
            )


def _run(
    method: Method[State],
    fed: Federation,
    schedule: Schedule,
    settings: dict[str, Any],
    checkpoint_file: Path | None,
    tell: Callable[[RoundRecord], None],
    found: Collection[Warned],
) -> Run:
    """Run as `run` does, but raise LostError if a model is lost. A repeated round draws the same random numbers.

    `found` has the warnings up to now, which are part of each checkpoint.
    """
    evaluator = Evaluator(method, fed, _adapted(schedule, fed), schedule.global_samples)
    evaluations, full, tried = schedule.evaluations, schedule.full_evaluations, False
    malicious = fed.places(fed.adversary_ids)
    early_stopping.check(fed, schedule.patience)
    state, history, matrices, best, computed_on = _restore(method, fed, settings, checkpoint_file)
    for record in history:
        tell(record)
    for t in range(len(history) + 1, schedule.rounds + 1):
        if early_stopping.ends(history, schedule.patience, malicious):
            break
        computed_on = _check_processor(computed_on, t)
        fed.current.start_round()
        start = time.perf_counter()
        before, last = state, t == schedule.rounds
        sampled = sample(fed, 1.0 if last and schedule.closing_round else schedule.participation, t)
        cohort, absent, late = turnout(method, sampled, t, fed, [r.cohort for r in history])
        if cohort:
            state, report, cohort, out = _round(method, before, cohort, t, fed)
            if not tried:  # once is enough: every round returns the same types
                contract.check_state(method, state)
                tried = True
        else:
            logger.warning("No client took part in round %d; nothing changes.", t)
            report, out = RoundReport({}, {}, matrices[-1] if matrices else None), Out()
        record = _record(t, cohort, absent, late, out, report, fed)
        if t in evaluations:
            record = evaluator.evaluate(
                Ended(record, before, state, report, history),
                full=t in full,
                pooled=last or schedule.patience is not None,
                is_only=last and not any(each.accuracy for each in history),
            )
        spent, phases = time.perf_counter() - start, fed.current.seconds
        server = max(0.0, spent - sum(phases.values()))  # the time outside all phases
        history.append(replace(record, seconds={**phases, "server": server, "round": spent}))
        if fed.training.privacy is not None:
            history[-1] = replace(history[-1], epsilon=_epsilon(fed, history))
        if report.coefficients is not None:
            now = report.coefficients.float().cpu()
            matrices += [now] * (t - len(matrices))  # the first rounds may have had no clients
        fed.client_states.end_round()
        if schedule.patience is not None and early_stopping.best(history, malicious) is history[-1]:
            best = t, state
        if checkpoint_file is not None:
            _save(checkpoint_file, settings, state, history, matrices, best, fed, found)
        tell(history[-1])
    rounds = len(history)
    if best is not None:
        rounds, state = best
        matrices = matrices[:rounds]
    state = replace(state, **_entries(state))  # type: ignore[type-var]
    return Run(state, rounds, history, torch.stack(matrices) if matrices else None)


def _check_processor(before: str, t: int) -> str:
    """Return the processor of round t. Warn if round t - 1 was computed on another one, `before`; empty without one."""
    if before not in ("", now := processor()):
        warn(
            "Another processor",
            f"Round {t - 1} was computed on {before}, and the run continues on {now}: its results may differ in the "
            "last digits from those of an uninterrupted run.",
        )
    return now


def _save(
    file: Path,
    settings: dict[str, Any],
    state: State,
    history: list[RoundRecord],
    matrices: list[Tensor],
    best: tuple[int, State] | None,
    fed: Federation,
    found: Iterable[Warned],
) -> None:
    """Write the checkpoint that `_restore` reads. A run without early stopping has no `best` round."""
    content = {
        "settings": settings,
        "state": _entries(state, stored),
        "history": [asdict(each) for each in history],
        "coefficients": matrices,
        "client_states": opened(fed.client_states.kept, stored),
        "processor": processor(),
        "warnings": [astuple(each) for each in found],
    }
    if best is not None:
        content["best"] = {"round": best[0], "state": _entries(best[1], stored)}
    checkpoint.save(file, content)


def _adapted(schedule: Schedule, fed: Federation) -> tuple[int, ...]:
    """Return the schedule's `adapt_epochs`; empty with private training, whose ε would not cover adaptation."""
    if schedule.adapt_epochs and fed.training.privacy is not None:
        logger.warning(
            "training.privacy is set: accuracy after adaptation is not measured, because its ε would not cover that "
            "training."
        )
        return ()
    return schedule.adapt_epochs


@dataclass
class Out:
    """The clients of a sampled cohort that do not finish a round."""

    absent: dict[int, str] = field(default_factory=dict)  #: reasons of real clients that were missing at first
    late: dict[int, str] = field(default_factory=dict)  #: reasons of real clients that dropped out during the round
    skipped: list[int] = field(default_factory=list)  #: clients that diverged

    @property
    def reasons(self) -> dict[int, str]:
        """The reason of each client that does not finish the round."""
        return {**dict.fromkeys(self.skipped, "diverged"), **self.absent, **self.late}


def _round(
    method: Method[State], before: State, cohort: list[int], t: int, fed: Federation
) -> tuple[State, RoundReport, list[int], Out]:
    """Run one round, and repeat it without the clients that dropped out, or that diverged and must be skipped.

    Every stream is named by client and round, so the repeated round equals, bit for bit, a round in which these clients
    were not sampled. A client with finite weights and a prediction that is not finite cannot be restored, so it is
    skipped. The executor decides whether enough clients are left. If not, the round is attempted again with the clients
    that have arrived by then.

    Returns the state, the report, the cohort that finished, and the clients that did not finish. Raises DivergedError
    if the run must stop or all clients of the cohort diverged, and InputError if the run cannot go on with so few
    clients, or the method returns values that cannot be used.
    """
    out = Out(fed.executor.missing(fed, cohort, t))
    while True:
        if not fed.executor.enough(cohort, out.reasons, t):
            out = Out(fed.executor.missing(fed, cohort, t))
            continue
        rest = [n for n in cohort if n not in out.reasons]
        fed.client_states.start_attempt()
        fed.current.start_attempt()
        try:
            found = method.round(before, rest, t, fed)
            contract.check_round(method, before, found, rest)
            state, report = found
        except ClientsMissing as error:
            out.late |= error.found
        except DivergedError as error:
            why = error.found
            gone = [n for n in rest if n in why]
            if fed.on_divergence == "stop" or not gone or len(gone) == len(rest):
                raise DivergedError(why, t, fed.names) from None
            for n in gone:
                who = named(n, fed.names)
                logger.warning("%s diverged in round %d (%s); it is skipped in this round.", who, t, why[n])
            out.skipped += gone
        else:
            if fed.current.restored >= set(rest):
                reason = "as did all of its cohort, so that no client learned anything"
                raise DivergedError(dict.fromkeys(rest, reason), t, fed.names)
            return state, report, rest, out


def _record(
    t: int, cohort: list[int], absent: list[int], late: list[int], out: Out, report: RoundReport, fed: Federation
) -> RoundRecord:
    """Return the record of round t before its evaluation, so that divergence in the evaluation is not recorded."""
    return RoundRecord(
        round=t,
        cohort=cohort,
        loss={phase: _in_order(values, cohort) for phase, values in fed.current.losses.items() if values},
        traffic={ledger: [getattr(report.traffic[n], ledger) for n in cohort] for ledger in LEDGERS},
        work=_work(fed, cohort),
        diverged=sorted({*out.skipped, *fed.current.restored}),
        absent=[*absent, *out.absent],
        late=[*late, *out.late],
        reasons={str(n): why for n, why in {**out.absent, **out.late}.items()},
        metrics={name: float(value) for name, value in report.metrics.items()},
    )


def _work(fed: Federation, cohort: list[int]) -> dict[str, list[float]]:
    """Return each cohort member's work in this round: samples backpropagated, and floating-point operations."""
    samples, flops = [], []
    for n in cohort:
        counted = fed.current.samples.get(n, Counter())
        samples.append(float(counted.total()))
        costs = {name: fed.cost(name or fed.by_id[n].architecture).flops for name in counted}
        flops.append(float(sum(BACKPROPAGATION * costs[name] * number for name, number in counted.items())))
    return {"samples": samples, "flops": flops}


def _epsilon(fed: Federation, history: list[RoundRecord]) -> list[float]:
    """Return each client's ε after these rounds. Training that diverged also counts, because its result was seen.

    So does that of a real client that dropped out in a round, because it may have trained before.
    """
    settings = fed.training
    assert settings.privacy is not None
    trained = [{*r.cohort, *r.diverged, *(n for n in r.late if str(n) in r.reasons)} for r in history]
    rounds = {n: sum(n in some for some in trained) for n in fed.by_id}
    epochs = [taken * fed.affordable(n, settings.epochs) for n, taken in rounds.items()]
    samples = [len(client.train) for client in fed.clients]
    return privacy.spent(settings.privacy, samples, epochs, settings.batch_size)


def _in_order(losses: dict[int | str, float], cohort: list[int]) -> list[float]:
    """Return the cohort's losses in cohort order, or the losses of the server's models sorted by name."""
    ours = [losses[n] for n in cohort if n in losses]  # a restored client has no loss
    return ours or [losses[name] for name in sorted(losses, key=str)]


def _entries(state: Any, of: Callable[[Handle], Any] = kept) -> dict[str, Any]:
    """Return the entries of a state by name, with `of` applied to the handles of remote models."""
    return {entry.name: opened(getattr(state, entry.name), of) for entry in fields(state)}


def _restore(
    method: Method[State], fed: Federation, settings: dict[str, Any], file: Path | None
) -> tuple[State, list[RoundRecord], list[Tensor], tuple[int, State] | None, str]:
    """Return the values after the last finished round.

    These are the state, the records, the matrices, the best round with its state, and the processor of the checkpoint.
    """
    contract.check_methods({contract.name_of(method): method}, fed)
    state = method.init(fed)
    contract.check_state(method, state)
    content = checkpoint.load(file, settings, fed.device) if file is not None else None
    if content is None:
        fed.client_states.kept = {}
        return state, [], [], None, ""
    assert file is not None
    entries, record = ({entry.name for entry in fields(kind)} for kind in (type(state), RoundRecord))  # type: ignore[arg-type]
    checkpoint.check_form(file, content, entries, record)
    fed.client_states.kept = fed.executor.revived(fed, content["client_states"])
    restored: State = replace(state, **fed.executor.revived(fed, content["state"]))  # type: ignore[type-var]
    recall(Warned(*each) for each in content["warnings"])
    history = [RoundRecord(**record) for record in content["history"]]
    best: tuple[int, State] | None = None
    if "best" in content:
        there = fed.executor.revived(fed, content["best"]["state"])
        best = content["best"]["round"], replace(state, **there)  # type: ignore[type-var]
    return restored, history, [matrix.cpu() for matrix in content["coefficients"]], best, content["processor"]
