"""Finished runs and their summaries over seeds, as plain data for JSON.

Accuracies are in 0..1, traffic is in bytes, and times are in seconds. An evaluation point is the time in a round at
which the clients' models are evaluated:

- ``after_transfer``: at the end of the round, after distillation or aggregation.
- ``after_local``: after local training, before clients receive knowledge.
- ``adapted_<e>``: after e further local epochs at the end of the round. The adapted models are discarded.

The point ``chosen`` is after transfer too, with the model that each client chooses to keep, see `choice`. Reports show
the points in the order of `ORDER`, followed by the points after adaptation.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from statistics import fmean
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.statistics import Final, benign, final, mean_by_place
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import (
    ADAPTED,
    AFTER_LOCAL,
    AFTER_TRANSFER,
    CHOSEN,
    LAST,
    LEDGERS,
    VALIDATION,
    Newcomers,
    RoundRecord,
)
from ktpfl_pipeline.core.rounds import early_stopping
from ktpfl_pipeline.core.warnings import Warned

ORDER = (AFTER_TRANSFER, AFTER_LOCAL, CHOSEN, VALIDATION)
TRAINED_SHARE = 0.95
"""The share of clients that must have taken part in training before an evaluation counts in a final value."""


class Stored:
    """A base class of dataclasses that are stored as plain values, including nested dataclasses."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}

    def to_dict(self) -> dict[str, Any]:
        """Return the object as plain values."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    @cache
    def _reader(cls) -> TypeAdapter[Self]:
        """Return the validator of the class. It is cached, because making it takes long."""
        return TypeAdapter(cls)

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Return the object from the values of `to_dict`, also after JSON. Raises ValueError for an invalid value."""
        try:
            return cls._reader().validate_python(content)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@dataclass(frozen=True)
class TheoremCheck:
    """The results of `theorem.check` for each client."""

    fit: dict[str, list[float]]  #: mean negative log-likelihood on the samples for the fit, by mixture, (N,) each
    test: dict[str, list[float]]  #: mean negative log-likelihood on the other samples, by mixture, (N,) each
    accuracy: dict[str, list[float]]  #: accuracy on the other samples, by mixture, (N,) each, 0..1
    certificate: list[float]  #: (N,) upper bound on the distance of the fit's loss from the minimum, in nats
    coefficients: list[list[float]]  #: (N, N) the fitted mixtures, row = client
    samples: list[list[int]]  #: (N, 2) numbers of samples for the fit and of other samples


@dataclass(frozen=True)
class FinishedRun(Stored):
    """A finished run of one method on one experiment with one seed."""

    experiment: str  #: name of the experiment and of its pipeline
    method: str  #: registry name
    seed: int  #: seed of the partition, the initial models and all other random draws
    partition: str  #: partition scheme of the private data, such as ``two_labels``
    run_id: str  #: MLflow's id of the run; empty without tracking
    key: str  #: hash that identifies the run's settings
    architectures: list[str]  #: (N,) architecture of each client
    #: (N, K) numbers of private samples per client and class; (N, 1) for real clients, which do not send labels
    label_counts: list[list[int]]
    history: list[RoundRecord]  #: one record per round
    #: (N, N) weights of each client's teachers after the last round, row = student; None without a matrix
    coefficients: list[list[float]] | None
    data: str = ""  #: fingerprint of the samples and the partition; empty if unknown
    #: (N, N) weights by round, for a few rounds including the last; see `matrix.snapshots`
    matrices: dict[int, list[list[float]]] = field(default_factory=dict)
    #: mean weight of students on ``own`` (the client itself), ``alike`` (other clients whose label distributions have a
    #: cosine similarity above `matrix.ALIKE`) and ``others``: one value per round each; the three sum to 1
    attention: dict[str, list[float]] = field(default_factory=dict)
    theorem: TheoremCheck | None = None  #: check of Theorem 1 on the final models; None if not made
    #: positions of the clients that upload false predictions, which are excluded from means over clients
    adversaries: list[int] = field(default_factory=list)
    #: mean final weight of benign clients on adversaries, in units of 1/N (`matrix.trust`); None without adversaries or
    #: without a matrix
    trust: float | None = None
    shape: list[int] = field(default_factory=list)  #: shape of one input; empty if unknown
    #: shape of one input in the private source, before images are resized; empty if it may differ between inputs
    native: list[int] = field(default_factory=list)
    kind: str = ""  #: name of the kind of inputs, see `core.kinds`; empty if unknown
    #: (N,) names of the clients in the source; empty unless the partition is ``natural``
    names: list[str] = field(default_factory=list)
    #: (N,) ids of the clients, as in cohorts; empty if they are 0 to N - 1
    ids: list[int] = field(default_factory=list)
    newcomers: Newcomers | None = None  #: results of the clients held out of training, which no other field includes
    #: (N,) estimated bytes of a step of plain local training (`Federation.training_memory`); empty if unknown
    memory: list[int] = field(default_factory=list)
    class_names: list[str] = field(default_factory=list)  #: (K,) names of the classes; empty without names
    #: for real clients, the bytes of packets ``sent`` to and ``received`` from each client, (N,) each; empty if there
    #: were none, or if they are incomplete because the server was restarted
    wire: dict[str, list[int]] = field(default_factory=dict)
    patience: int | None = None  #: patience of early stopping, see `core.rounds.early_stopping`; None without
    #: (K, K) numbers of test samples of all benign clients by true class (row) and predicted class (column), with the
    #: models after the last round; empty if the server does not know the labels
    confusion: list[list[int]] = field(default_factory=list)
    #: (N,) number of classes that each client's final model predicts on its test samples; empty if unknown
    predicted: list[int] = field(default_factory=list)
    #: (N,) for each client a digit per test sample, 1 if its final model is right and else 0; empty if unknown
    correct: list[str] = field(default_factory=list)
    #: by headline except accuracy, (N, G): its value for each client's final model without one of G groups of the test
    #: samples; empty if unknown
    jackknife: dict[str, list[list[float]]] = field(default_factory=dict)
    #: (N,) a hash of each client's test samples, equal for seeds with equal ones; empty if unknown
    tested: list[str] = field(default_factory=list)
    #: (N,) numbers of samples by split, ``train``, ``validation`` and ``test``; empty if unknown
    samples: dict[str, list[int]] = field(default_factory=dict)
    #: (N,) test accuracy of always predicting the most frequent class of a client's training samples, 0..1; empty if
    #: the server does not know the labels
    majority: list[float] = field(default_factory=list)
    warnings: list[Warned] = field(default_factory=list)  #: what was found in the data, in the models and in the run

    @property
    def labels_known(self) -> bool:
        """Whether the classes of each client are known."""
        return len(self.label_counts[0]) > 1

    @property
    def client_ids(self) -> list[int]:
        """(N,) the ids of the clients; by default 0 to N - 1."""
        return self.ids or list(range(len(self.architectures)))

    @property
    def client_names(self) -> Sequence[str | int]:
        """(N,) the names of the clients in the source, or their ids if there are no names."""
        return self.names or self.client_ids

    @property
    def evaluated(self) -> list[RoundRecord]:
        """The records of the evaluated rounds."""
        return [record for record in self.history if record.accuracy]

    @cached_property
    def counted(self) -> list[RoundRecord]:
        """The evaluations of the final value: the last five after 95 % of the clients have taken part in training.

        In earlier rounds, more models are untrained. A client whose training diverged counts as having taken part, so
        that the rounds are equal for all methods. If 95 % is never reached, the last five evaluations count. With early
        stopping, only the round with the best validation accuracy counts.
        """
        if self.patience is not None and (best := early_stopping.best(self.history, self.adversaries)):
            return [best]
        seen: set[int] = set()
        found = []
        for record in self.history:
            seen.update(record.cohort, record.diverged)
            if record.accuracy and len(seen) / len(self.architectures) >= TRAINED_SHARE:
                found.append(record)
        return (found or self.evaluated)[-LAST:]

    @property
    def sampled(self) -> list[int]:
        """Positions of the clients that were ever in a cohort."""
        seen = {n for record in self.history for n in record.cohort}
        return [place for place, n in enumerate(self.client_ids) if n in seen]

    @property
    def sampled_share(self) -> float:
        """The share of clients in any cohort; below `TRAINED_SHARE`, final values include untrained models."""
        return len(self.sampled) / len(self.architectures)

    @cached_property
    def points(self) -> list[str]:
        """The evaluation points that have a final value, in the order of reports."""
        known = {point for record in self.counted for point in self.means(record)}
        adapted = sorted((p for p in known if p.startswith(ADAPTED)), key=lambda p: int(p.removeprefix(ADAPTED)))
        return [*(point for point in ORDER if point in known), *adapted]

    def final(self, point: str) -> list[float]:
        """Return each client's accuracy at `point`, (N,): the mean over the `counted` evaluations at this point."""
        return mean_by_place(record.accuracy[point] for record in self.counted if point in record.accuracy)

    def means(self, record: RoundRecord) -> dict[str, float]:
        """Return a round's mean accuracy over the benign clients by evaluation point, where one of them has a value."""
        known = {point: benign(values, self.adversaries) for point, values in record.accuracy.items()}
        return {point: fmean(values) for point, values in known.items() if values}

    @cached_property
    def traffic(self) -> dict[str, int]:
        """Bytes by traffic category, summed over clients and rounds."""
        return {name: sum(sum(record.traffic.get(name, [])) for record in self.history) for name in LEDGERS}

    @cached_property
    def work(self) -> dict[str, float]:
        """The computation of all clients over all rounds: backpropagated ``samples``, and ``flops``."""
        names = dict.fromkeys(name for record in self.history for name in record.work)
        return {name: sum(sum(record.work.get(name, ())) for record in self.history) for name in names}

    @cached_property
    def measures(self) -> dict[str, list[float]]:
        """The measures of each client's model, (N,), by name: means over evaluations of the final value that have them.

        The value is NaN if the measure is not defined for a client's samples.
        """
        names = dict.fromkeys(name for record in self.counted for name in record.measures)
        return {name: mean_by_place(r.measures[name] for r in self.counted if name in r.measures) for name in names}

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric that the method reports (`RoundReport.metrics`)."""
        return {name: value for record in self.history for name, value in record.metrics.items()}

    @property
    def classes(self) -> list[str]:
        """The names of the classes, or their numbers; empty if the server does not know the labels."""
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
class MethodResult(Stored):
    """The results of one method over its seeds."""

    method: str  #: registry name
    title: str  #: name in tables and figures
    final: dict[str, Final]  #: final accuracy by evaluation point, and final values of the measures by name
    traffic: dict[str, float]  #: bytes by category, summed over clients and rounds, mean over seeds
    seconds: dict[str, float]  #: wall time by phase, summed over rounds, mean over seeds; ``round`` is the whole round
    rounds: int  #: number of rounds, maximum over seeds
    seeds: list[int]  #: seeds, ascending
    run_ids: list[str]  #: MLflow's id of each seed's run; empty strings without tracking
    curve: dict[str, Curve]  #: accuracy by round, by evaluation point
    hyperparameters: dict[str, Any]
    settings: dict[str, Any]  #: settings of the experiment, which all methods of a comparison share
    runs: list[FinishedRun]  #: one run per seed; empty in the stored results for the overview

    def __repr__(self) -> str:
        means = [f", {point} {final.mean:.3f}" for point, final in self.final.items()]
        return f"MethodResult({self.title}, {plural(self.rounds, 'round')}, seeds {self.seeds}{''.join(means[:1])})"

    @property
    def early_stopping(self) -> bool:
        """Whether only the round with the highest mean validation accuracy counts in the final value."""
        asked = any(run.patience is not None for run in self.runs)
        return asked or bool(self.settings.get("evaluation", {}).get("patience"))

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return len(self.runs[0].architectures)

    @property
    def turns(self) -> float:
        """The number of client participations: cohort sizes summed over rounds, mean over seeds; always above 0."""
        turns = sum(len(record.cohort) for run in self.runs for record in run.history)
        return max(1, turns) / len(self.runs)  # possibly no client was ever available

    @property
    def sent(self) -> float:
        """Bytes that all clients sent and received over the whole run, mean over seeds."""
        return sum(self.traffic.values())

    @property
    def predictions(self) -> float:
        """Bytes of knowledge, sent and received over the whole run, mean over seeds: no models and no public data."""
        return self.traffic["knowledge_up"] + self.traffic["knowledge_down"]

    def having(self, runs: Sequence[FinishedRun]) -> "MethodResult":
        """Return the result with other runs in place of its own."""
        return replace(summarize(runs, self.hyperparameters, self.settings), title=self.title)

    def client_curves(self, point: str) -> tuple[list[int], list[list[float]]]:
        """Return the rounds that every seed evaluated, and each client's accuracy, mean over seeds, (rounds, N)."""
        by_round = [{r.round: r.accuracy[point] for r in run.evaluated if point in r.accuracy} for run in self.runs]
        rounds = self.curve[point].rounds
        return rounds, [mean_by_place(accuracy[t] for accuracy in by_round) for t in rounds]


def summarize(
    runs: Sequence[FinishedRun], hyperparameters: dict[str, Any], settings: dict[str, Any] | None = None
) -> MethodResult:
    """Summarize the runs of one method over seeds.

    Args:
        runs: one run per seed, in any order.
        hyperparameters: the hyperparameters of the method.
        settings: the settings that all methods share.

    Raises:
        ValueError: if the runs differ in method, experiment, partition, or number of clients or rounds; if two runs
            have the same seed; if a run was never evaluated.
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
    by_round = mean_by_place(curve.by_seed) or [fmean(map(fmean, clients))]  # early stopping: often no common round
    return final(clients, mean_by_place(run.final(point) for run in runs), max(by_round))


def _measured(runs: Sequence[FinishedRun]) -> dict[str, Final]:
    """Return the final values, by name, of the measures that at least one benign client has with every seed.

    Clients without a measure, such as AUC for samples of one class, are excluded from its means. `Final.per_client` is
    empty.
    """
    measures = [(run.measures, run.adversaries) for run in runs]
    first, _ = measures[0]
    found = {name: [benign(each.get(name, []), adversaries) for each, adversaries in measures] for name in first}
    return {name: final(values, [], fmean(map(fmean, values))) for name, values in found.items() if all(values)}


def _curve(runs: Sequence[FinishedRun], point: str) -> Curve:
    means = [
        {record.round: mean[point] for record in run.evaluated if point in (mean := run.means(record))} for run in runs
    ]
    rounds = sorted(set.intersection(*map(set, means)))
    return Curve(rounds, [[by_round[t] for t in rounds] for by_round in means])


def recalls(runs: Sequence[FinishedRun]) -> list[float | None]:
    """Return the recall of each class, (K,), in 0..1, over the test samples of all runs.

    The value of a class without test samples is None. Every run must have a confusion matrix.
    """
    classes = range(len(runs[0].confusion))
    samples = [sum(sum(run.confusion[label]) for run in runs) for label in classes]
    hits = [sum(run.confusion[label][label] for run in runs) for label in classes]
    return [hit / count if count else None for hit, count in zip(hits, samples, strict=True)]
