"""Finished runs and their summary over seeds: plain data, ready for JSON; and the roles of methods in a comparison.

Accuracies are in 0..1, traffic is in bytes, times are in seconds. An evaluation point says when in a round the clients
were evaluated: ``after_transfer`` is the headline, the personalized models at the round's end, after distillation (or
aggregation); ``after_local`` comes before it, when no knowledge has come back yet; ``adapted_<e>`` after it, when each
model was trained for e extra local epochs, evaluated and discarded. `ORDER` of the points is the order in which reports
show them; those after adaptation follow.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from statistics import fmean
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.statistics import Final, benign, final, mean_by_place, mean_over_clients
from ktpfl_pipeline.core.metrics import (
    ADAPTED,
    AFTER_LOCAL,
    AFTER_TRANSFER,
    LAST,
    LEADING,
    LEDGERS,
    VALIDATION,
    Newcomers,
    RoundRecord,
)
from ktpfl_pipeline.core.rounds import early_stopping

HEADLINE = AFTER_TRANSFER
ORDER = (HEADLINE, AFTER_LOCAL, VALIDATION)
COVERED = 0.95
"""Share of the clients that must have taken part before an evaluation counts in a final value."""


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


@dataclass(frozen=True)
class TheoremCheck:
    """The results of `theorem.check`, client by client."""

    fit: dict[str, list[float]]  #: mean negative log-likelihood on the samples it was fitted to, by mixture, (N,) each
    test: dict[str, list[float]]  #: the same on the other samples
    accuracy: dict[str, list[float]]  #: on the other samples, by mixture, (N,) each, 0..1
    certificate: list[float]  #: (N,) upper bound on the distance of the fitted mixture from the best, in nats
    coefficients: list[list[float]]  #: (N, N) the fitted mixtures, row = client
    samples: list[list[int]]  #: (N, 2) number of samples to fit, and others


@dataclass(frozen=True)
class FinishedRun(Kept):
    """One method on one experiment with one seed."""

    experiment: str  #: name of the experiment, that of its pipeline
    method: str  #: registry name
    seed: int  #: what partition, initial models and every other draw come from
    partition: str  #: how the private data was split, ``two_labels`` for example
    run_id: str  #: MLflow's id of the run; empty without tracking
    key: str  #: what identifies the run's settings
    architectures: list[str]  #: (N,) architecture of each client
    #: (N, K) private samples of each client by class; of real clients, whose labels stay with them, (N, 1)
    label_counts: list[list[int]]
    history: list[RoundRecord]  #: one record a round
    #: (N, N) weights of each client's teachers after the last round, row = student; None without such a matrix
    coefficients: list[list[float]] | None
    data: str = ""  #: fingerprint of the samples and the partition; empty where it is not known
    #: (N, N) weights by round, for a few rounds spread over the run, the last among them
    matrices: dict[int, list[list[float]]] = field(default_factory=dict)
    #: mean over students of the weight on ``own`` (the client itself), ``alike`` (other clients whose label
    #: distributions have a cosine similarity above `matrix.ALIKE`) and ``others``, one value a round, with the sum one
    attention: dict[str, list[float]] = field(default_factory=dict)
    theorem: TheoremCheck | None = None  #: the check of Theorem 1 on the final models; None where it was not made
    #: places of the clients that upload false predictions; no mean over clients counts them
    adversaries: list[int] = field(default_factory=list)
    #: mean final weight that the others give to these, in units of 1/N (`matrix.trust`); None without either
    trust: float | None = None
    shape: list[int] = field(default_factory=list)  #: of one input; empty where it is not known
    #: the same as the private source has it, before images were brought to a size; empty where they had many
    native: list[int] = field(default_factory=list)
    kind: str = ""  #: name of the kind of inputs, see `core.kinds`; empty where it is not known
    #: (N,) what the source calls the clients; empty where a scheme dealt out its samples
    names: list[str] = field(default_factory=list)
    #: (N,) the clients' ids, by which cohorts name them; empty where these are 0 to N - 1
    ids: list[int] = field(default_factory=list)
    newcomers: Newcomers | None = None  #: what became of clients that were held out, which nothing else counts
    #: (N,) bytes of a step of plain local training, an estimate (`Federation.training_memory`); empty if not known
    memory: list[int] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)  #: (K,) what the source calls the classes; empty without names
    #: of real clients, the bytes of packets that each was ``sent`` and that were ``received`` of it, (N,) each; empty
    #: where none traveled, or not all since the server was started
    wire: dict[str, list[int]] = field(default_factory=dict)
    patience: int | None = None  #: of early stopping by validation, see `core.rounds.early_stopping`; None without it
    #: (K, K) test samples of all benign clients by true class (row) and predicted class, with the models after the
    #: last round; empty where only the clients know their labels
    confusion: list[list[int]] = field(default_factory=list)
    #: (N,) test accuracy of always predicting the most frequent class of a client's training samples, 0..1; empty
    #: where only the clients know their labels
    majority: list[float] = field(default_factory=list)

    @property
    def labels_known(self) -> bool:
        """Whether it is known which classes each client has."""
        return len(self.label_counts[0]) > 1

    @property
    def client_ids(self) -> list[int]:
        """(N,) the clients' ids; without newcomers, these are mostly their places."""
        return self.ids or list(range(len(self.architectures)))

    @property
    def client_names(self) -> Sequence[str | int]:
        """(N,) what the source calls the clients; their ids where it has no names."""
        return self.names or self.client_ids

    @property
    def evaluated(self) -> list[RoundRecord]:
        """The rounds that were evaluated."""
        return [record for record in self.history if record.accuracy]

    @property
    def counted(self) -> list[RoundRecord]:
        """The evaluations that make the final value: the last five after 95 % of the clients have taken part.

        Before that, some models are untrained. A client that diverged and sat out counts as having taken part, so that
        the rounds are the same for all methods. If 95 % is never reached, the last five evaluations count. With early
        stopping, only the round with the best validation accuracy counts.
        """
        if self.patience is not None and (best := early_stopping.best(self.history, self.adversaries)):
            return [best]
        seen: set[int] = set()
        found = []
        for record in self.history:
            seen.update(record.cohort, record.diverged)
            if record.accuracy and len(seen) / len(self.architectures) >= COVERED:
                found.append(record)
        return (found or self.evaluated)[-LAST:]

    @property
    def sampled(self) -> list[int]:
        """Places of the clients that were ever in a cohort."""
        seen = {n for record in self.history for n in record.cohort}
        return [place for place, n in enumerate(self.client_ids) if n in seen]

    @property
    def covered(self) -> float:
        """Share of the clients that were ever in a cohort; below `COVERED`, the final value counts untrained models."""
        return len(self.sampled) / len(self.architectures)

    @property
    def points(self) -> list[str]:
        """The evaluation points that have a final value, in the order of reports."""
        known = {point for record in self.counted for point in record.accuracy}
        adapted = sorted((p for p in known if p.startswith(ADAPTED)), key=lambda p: int(p.removeprefix(ADAPTED)))
        return [*(point for point in ORDER if point in known), *adapted]

    def final(self, point: str) -> list[float]:
        """Return each client's accuracy at `point`, (N,): the mean over the `counted` evaluations that have it."""
        return mean_by_place(record.accuracy[point] for record in self.counted if point in record.accuracy)

    def means(self, record: RoundRecord) -> dict[str, float]:
        """Return a round's mean accuracy over the benign clients by evaluation point; empty if it was not evaluated."""
        return {point: mean_over_clients(values, self.adversaries) for point, values in record.accuracy.items()}

    @property
    def traffic(self) -> dict[str, int]:
        """Bytes by traffic category, summed over clients and rounds."""
        return {name: sum(sum(record.traffic.get(name, [])) for record in self.history) for name in LEDGERS}

    @property
    def work(self) -> dict[str, float]:
        """The work of all clients over the rounds: ``samples`` backpropagated, and their ``flops``."""
        names = dict.fromkeys(name for record in self.history for name in record.work)
        return {name: sum(sum(record.work.get(name, ())) for record in self.history) for name in names}

    @property
    def measures(self) -> dict[str, list[float]]:
        """Measures of each client's model, (N,), mean over those evaluations of the final value that have them.

        NaN for a client whose samples do not have the measure.
        """
        names = dict.fromkeys(name for record in self.counted for name in record.measures)
        return {name: mean_by_place(r.measures[name] for r in self.counted if name in r.measures) for name in names}

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers that the method reports of itself (`RoundReport.metrics`): the last value of each."""
        return {name: value for record in self.history for name, value in record.metrics.items()}

    @property
    def classes(self) -> list[str]:
        """The classes' names, or their numbers; empty where only the clients know their labels."""
        return self.class_names or [str(label) for label in range(len(self.label_counts[0]))] * self.labels_known

    def seconds(self, phase: str) -> float:
        """Return the wall time of a phase, summed over the rounds."""
        return sum(record.seconds.get(phase, 0.0) for record in self.history)


@dataclass(frozen=True)
class Curve:
    """Accuracy by round at one evaluation point."""

    rounds: list[int]  #: the rounds that every seed evaluated
    by_seed: list[list[float]]  #: (seeds, rounds) mean over the benign clients


@dataclass(frozen=True)
class MethodResult(Kept):
    """One method over its seeds."""

    method: str  #: registry name
    title: str  #: its name in tables and figures
    final: dict[str, Final]  #: final accuracy by evaluation point, and final values of the measures by name
    traffic: dict[str, float]  #: bytes by category, summed over clients and rounds, mean over seeds
    seconds: dict[str, float]  #: wall time by phase, summed over rounds, mean over seeds; ``round`` is the whole round
    rounds: int  #: how many were run
    seeds: list[int]  #: ascending
    run_ids: list[str]  #: MLflow's id of each seed's run; empty texts without tracking
    curve: dict[str, Curve]  #: accuracy by round, by evaluation point
    hyperparameters: dict[str, Any]
    settings: dict[str, Any]  #: the experiment's, which all methods of a comparison share
    runs: list[FinishedRun]  #: one finished run a seed; none in what a comparison leaves for the overview

    @property
    def early_stopping(self) -> bool:
        """Whether the round with the highest mean validation accuracy counts, and no other."""
        asked = any(run.patience is not None for run in self.runs)
        return asked or bool(self.settings.get("evaluation", {}).get("patience"))

    @property
    def clients(self) -> int:
        """N."""
        return len(self.runs[0].architectures)

    @property
    def time(self) -> float:
        """Wall time of the rounds in seconds, mean over seeds."""
        return self.seconds["round"]

    @property
    def turns(self) -> float:
        """How often a client was in a round's cohort, summed over clients and rounds, mean over seeds."""
        turns = sum(len(record.cohort) for run in self.runs for record in run.history)
        return max(1, turns) / len(self.runs)  # no client may ever have been available

    @property
    def sent(self) -> float:
        """Bytes that all clients sent and received over the whole run, mean over seeds."""
        return sum(self.traffic.values())

    @property
    def predictions(self) -> float:
        """The part of these bytes that is neither models nor public data."""
        return self.traffic["knowledge_up"] + self.traffic["knowledge_down"]

    def client_curves(self, point: str) -> tuple[list[int], list[list[float]]]:
        """Return the rounds that every seed evaluated, and each client's mean over seeds there, (rounds, N)."""
        by_round = [{r.round: r.accuracy[point] for r in run.evaluated if point in r.accuracy} for run in self.runs]
        rounds = self.curve[point].rounds
        return rounds, [mean_by_place(accuracy[t] for accuracy in by_round) for t in rounds]


def summarize(
    runs: Sequence[FinishedRun], hyperparameters: dict[str, Any], settings: dict[str, Any] | None = None
) -> MethodResult:
    """Summarize the runs of one method, one per seed in any order; `settings` are those that all methods share.

    Raises:
        ValueError: if the runs are not of one method, experiment and partition with one run a seed, or one of them was
            never evaluated.
    """
    rounds = {run.seed: len(run.history) if run.patience is None else "stopped early" for run in runs}
    kinds = {(run.experiment, run.method, run.partition, len(run.architectures), rounds[run.seed]) for run in runs}
    if len(kinds) != 1:
        listed = "; ".join(", ".join(map(str, kind)) for kind in sorted(kinds)) or "none"
        parts = "experiment, method, partition, clients and rounds"
        raise ValueError(f"Runs to summarize must agree in {parts}, and these do not: {listed}.")
    runs = sorted(runs, key=lambda run: run.seed)
    method, seeds = runs[0].method, [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"Runs to summarize must have one run a seed; the seeds are {seeds}.")
    if unevaluated := [run.seed for run in runs if not run.evaluated]:
        raise ValueError(f"{method} was never evaluated with seed {unevaluated[0]}.")
    curve = {point: _curve(runs, point) for point in runs[0].points if all(point in run.points for run in runs)}
    traffic = [run.traffic for run in runs]
    phases = {phase: None for run in runs for record in run.history for phase in record.seconds}  # in order
    return MethodResult(
        method=method,
        title=methods.title(method),
        final={**{point: _final(runs, point, by) for point, by in curve.items()}, **_measured(runs)},
        traffic={name: fmean(sent[name] for sent in traffic) for name in LEDGERS},
        seconds={phase: fmean(run.seconds(phase) for run in runs) for phase in phases},
        rounds=max(len(run.history) for run in runs),
        seeds=seeds,
        run_ids=[run.run_id for run in runs],
        curve=curve,
        hyperparameters=dict(hyperparameters),
        settings=settings or {},
        runs=runs,
    )


def _final(runs: Sequence[FinishedRun], point: str, curve: Curve) -> Final:
    clients = [benign(run.final(point), run.adversaries) for run in runs]
    return final(clients, mean_by_place(run.final(point) for run in runs), max(mean_by_place(curve.by_seed)))


def _measured(runs: Sequence[FinishedRun]) -> dict[str, Final]:
    """Return the final values of the measures that some benign client has with every seed, by name.

    Clients that do not have a measure, such as AUC with one class, count in none of its means; `Final.per_client` is
    empty.
    """
    measures = [(run.measures, run.adversaries) for run in runs]
    first, _ = measures[0]
    found = {name: [benign(each.get(name, []), adversaries) for each, adversaries in measures] for name in first}
    return {name: final(values, [], fmean(map(fmean, values))) for name, values in found.items() if all(values)}


def _curve(runs: Sequence[FinishedRun], point: str) -> Curve:
    means = [
        {record.round: run.means(record)[point] for record in run.evaluated if point in record.accuracy} for run in runs
    ]
    rounds = sorted(set.intersection(*map(set, means)))
    return Curve(rounds, [[by_round[t] for t in rounds] for by_round in means])


def ranked(results: Sequence[MethodResult], point: str = HEADLINE) -> list[MethodResult]:
    """Return the methods that have a final value at a point, the highest mean first, of equals the first."""
    known = [result for result in results if point in result.final]
    return sorted(known, key=lambda result: -result.final[point].mean)


def local_only(results: Sequence[MethodResult]) -> MethodResult | None:
    """Return the local-only result, None where there is none."""
    return next((result for result in results if result.method == "local"), None)


def subject(results: Sequence[MethodResult]) -> MethodResult:
    """Return the method that a report is about.

    This is the method that the setting ``subject`` names, if it is among the results; otherwise KT-pFL, otherwise the
    first method that exchanges knowledge, otherwise local-only training.
    """
    asked = results[0].settings.get("subject")
    exchanging = [result for result in results if result.method != "local"]
    preferred = [result for name in (asked, "kt_pfl") for result in results if result.method == name]
    return [*preferred, *exchanging, *results][0]


def headline(results: Sequence[MethodResult]) -> str:
    """Return what leads a report: an entry of `MethodResult.final`.

    It is the measure that the setting ``headline`` names where all results have it, and else accuracy after transfer.
    """
    asked = results[0].settings.get("headline", "accuracy")
    return asked if asked in LEADING and all(asked in result.final for result in results) else HEADLINE
