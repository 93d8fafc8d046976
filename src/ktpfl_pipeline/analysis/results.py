"""What is kept of finished runs, and their summary over seeds: plain data, ready for JSON.

Accuracies are in 0..1, traffic is in bytes, times are in seconds. An evaluation point says when in a round the clients
were evaluated: ``after_transfer`` is the headline, the personalized models at the round's end, after distillation (or
aggregation); ``after_local`` comes before it, when no knowledge has come back yet. `ORDER` of the points is the order
in which reports show them.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev, stdev
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import differences
from ktpfl_pipeline.core.metrics import LEDGERS, RoundRecord

if TYPE_CHECKING:
    from ktpfl_pipeline.analysis.theorem import TheoremCheck

HEADLINE = "after_transfer"
ORDER = (HEADLINE, "after_local", "validation")
LAST = 5
"""Evaluations whose mean is the final value of a run."""
CONFIDENCE = 0.95
"""Of the intervals of differences."""


@dataclass(frozen=True)
class FinishedRun:
    """One method on one experiment with one seed.

    Attributes:
        experiment: name of the experiment, that of its pipeline.
        method: registry name of the method.
        seed: what partition, initial models and every other draw come from.
        partition: how the private data was split, ``two_labels`` for example.
        run_id: MLflow's id of the run; empty without tracking.
        key: what identifies the run's settings.
        architectures: (N,) architecture of each client.
        label_counts: (N, K) private samples of each client by class.
        history: one record a round.
        coefficients: (N, N) weights of each client's teachers after the last round, row = student; None where the
            method has no such matrix.
        data: fingerprint of the images and the partition; empty where it is not known.
        matrices: (N, N) weights by round, for a few rounds spread over the run, the last among them.
        attention: mean over students of the weight on ``own`` (the client itself), ``alike`` (other clients whose label
            distributions have a cosine similarity above one half) and ``others``, each one value a round; the three
            sum to one.
        theorem: the check of Theorem 1 on the final models, see `theorem.check`; None where it was not made.
        adversaries: places of the clients that upload false predictions; no mean over clients counts them.
        trust: mean final weight that the others give to these, in units of 1/N (`matrix.trust`); None without them or
            without a matrix.
    """

    experiment: str
    method: str
    seed: int
    partition: str
    run_id: str
    key: str
    architectures: list[str]
    label_counts: list[list[int]]
    history: list[RoundRecord]
    coefficients: list[list[float]] | None
    data: str = ""
    matrices: dict[int, list[list[float]]] = field(default_factory=dict)
    attention: dict[str, list[float]] = field(default_factory=dict)
    theorem: "TheoremCheck | None" = None
    adversaries: list[int] = field(default_factory=list)
    trust: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the run in plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "FinishedRun":
        """Return the run that `to_dict` wrote."""
        check = None
        if content.get("theorem"):
            from ktpfl_pipeline.analysis.theorem import TheoremCheck  # it imports torch

            check = TheoremCheck(**content["theorem"])
        return cls(
            **{
                **content,
                "history": [RoundRecord(**record) for record in content["history"]],
                "matrices": {int(t): matrix for t, matrix in content.get("matrices", {}).items()},
                "theorem": check,
            }
        )

    @property
    def evaluated(self) -> list[RoundRecord]:
        """The rounds that were evaluated."""
        return [record for record in self.history if record.accuracy]

    def final(self, point: str) -> list[float]:
        """Return each client's accuracy at `point`, the mean of the last five evaluations, (N,)."""
        return _by_client(record.accuracy[point] for record in self.evaluated[-LAST:])

    def honest(self, point: str) -> list[float]:
        """Return the same without the adversaries."""
        return honest(self.final(point), self.adversaries)


@dataclass(frozen=True)
class Final:
    """Final accuracy of a method at one evaluation point. Adversaries count in `per_client` alone.

    Attributes:
        mean: over seeds, of the mean over clients.
        seed_std: sample standard deviation over seeds of the mean over clients; None with one seed.
        client_std: mean over seeds of the standard deviation over the federation's clients.
        per_client: (N,) mean over seeds.
        per_seed: mean over clients for each seed, in the order of the seeds.
        worst_decile: mean over seeds of the mean over the worst tenth of that seed's clients, at least one client.
        best: the best round's mean over clients and seeds: recorded, never the headline.
        client_std_spread: sample standard deviation over seeds of what `client_std` is the mean of; None with one seed.
        worst_decile_spread: the same for `worst_decile`.
    """

    mean: float
    seed_std: float | None
    client_std: float
    per_client: list[float]
    per_seed: list[float]
    worst_decile: float
    best: float
    client_std_spread: float | None = None
    worst_decile_spread: float | None = None


@dataclass(frozen=True)
class Difference:
    """The difference of two accuracies, paired by seed, in 0..1, with its 95 % t interval over the seeds.

    Attributes:
        mean: of the differences by seed.
        std: their sample standard deviation; None with one seed.
        low: lower end of the interval; None with one seed.
        high: upper end.
        seeds: how many seeds both have.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero: the seeds carry the difference. Else 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class MethodResult:
    """One method over its seeds.

    Attributes:
        method: registry name.
        title: its name in tables and figures.
        hyperparameters: their values.
        runs: one finished run per seed, seeds ascending.
        final: final accuracy by evaluation point.
        traffic: bytes by ledger, summed over clients and rounds, mean over seeds.
        seconds: wall time by phase, summed over rounds, mean over seeds; ``round`` is the whole round.
        rounds: how many were run.
        settings: of the experiment, which all its methods share.
    """

    method: str
    title: str
    hyperparameters: dict[str, Any]
    runs: list[FinishedRun]
    final: dict[str, Final]
    traffic: dict[str, float]
    seconds: dict[str, float]
    rounds: int
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the result in plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "MethodResult":
        """Return the result that `to_dict` wrote."""
        runs = [FinishedRun.from_dict(run) for run in content["runs"]]
        final = {point: Final(**values) for point, values in content["final"].items()}
        return cls(**{**content, "runs": runs, "final": final})

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs, ascending."""
        return [run.seed for run in self.runs]

    @property
    def clients(self) -> int:
        """N."""
        return len(self.runs[0].architectures)

    @property
    def time(self) -> float:
        """Wall time of the rounds in seconds, mean over seeds."""
        return self.seconds["round"] if "round" in self.seconds else sum(self.seconds.values())

    def curve(self, point: str) -> tuple[list[int], list[list[float]]]:
        """Return the rounds that every seed evaluated, and each seed's mean over clients there, (seeds, rounds)."""
        return curve(self.runs, point)

    def client_curves(self, point: str) -> tuple[list[int], list[list[float]]]:
        """Return the rounds that every seed evaluated, and each client's mean over seeds there, (rounds, N)."""
        by_round = [{record.round: record.accuracy[point] for record in run.evaluated} for run in self.runs]
        rounds = sorted(set.intersection(*map(set, by_round)))
        return rounds, [_by_client(accuracy[t] for accuracy in by_round) for t in rounds]


def honest(values: Sequence[float], adversaries: Sequence[int]) -> list[float]:
    """Return one value a client without those of the adversaries, whose places are given."""
    return [value for place, value in enumerate(values) if place not in adversaries]


def curve(runs: Sequence[FinishedRun], point: str) -> tuple[list[int], list[list[float]]]:
    """Return the rounds that every run evaluated, and each run's mean over clients there, (runs, rounds)."""
    means = [
        {record.round: fmean(honest(record.accuracy[point], run.adversaries)) for record in run.evaluated}
        for run in runs
    ]
    rounds = sorted(set.intersection(*map(set, means)))
    return rounds, [[by_round[t] for t in rounds] for by_round in means]


def summarise(runs: Sequence[FinishedRun], hyperparameters: dict[str, Any]) -> MethodResult:
    """Summarise the runs of one method, one per seed.

    Raises:
        ValueError: if the runs are not of one method, experiment and partition with one run a seed, or one of them was
            never evaluated.
    """
    from ktpfl_pipeline.methods import title as title_of  # it imports torch

    kinds = {(run.experiment, run.method, run.partition, len(run.architectures), len(run.history)) for run in runs}
    if len(kinds) != 1:
        listed = "; ".join(", ".join(map(str, kind)) for kind in sorted(kinds)) or "none"
        raise ValueError(
            "Runs to summarise must agree in experiment, method, partition, clients and rounds, and these do not: "
            f"{listed}."
        )
    runs = sorted(runs, key=lambda run: run.seed)
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"Runs to summarise must have one run a seed; the seeds are {seeds}.")
    unevaluated = [run.seed for run in runs if not run.evaluated]
    if unevaluated:
        raise ValueError(f"{runs[0].method} was never evaluated with seed {unevaluated[0]}.")
    known = set.intersection(*(set(record.accuracy) for run in runs for record in run.evaluated))
    phases = {phase: None for run in runs for record in run.history for phase in record.seconds}  # in order
    return MethodResult(
        method=runs[0].method,
        title=title_of(runs[0].method),
        hyperparameters=dict(hyperparameters),
        runs=list(runs),
        final={point: _final(runs, point) for point in ORDER if point in known},
        traffic={
            ledger: fmean(sum(sum(record.traffic.get(ledger, [])) for record in run.history) for run in runs)
            for ledger in LEDGERS
        },
        seconds={
            phase: fmean(sum(record.seconds.get(phase, 0.0) for record in run.history) for run in runs)
            for phase in phases
        },
        rounds=len(runs[0].history),
    )


def comparable(results: Sequence[MethodResult], settings: dict[str, Any]) -> list[MethodResult]:
    """Return the results if all were made with these settings, and saw the same data with each seed.

    Args:
        results: of one comparison.
        settings: what all its methods share, now.

    Raises:
        InputError: naming the method and what differs.
    """
    for result in results:
        if changes := differences(result.settings, settings):
            raise InputError(
                f"The result of {result.method} was made with other settings ({changes}); run it again with these, "
                "or put the settings back: a comparison needs equal ones."
            )
    seen: dict[int, str] = {}
    for result in results:
        for run in result.runs:
            if run.data != seen.setdefault(run.seed, run.data):
                raise InputError(
                    f"{result.method} saw other data than {results[0].method} with seed {run.seed}: the images or the "
                    "partition changed between their runs; run the whole comparison again."
                )
    return list(results)


def paired_difference(
    a: MethodResult, b: MethodResult, point_a: str = HEADLINE, point_b: str = HEADLINE
) -> Difference | None:
    """Return a minus b, from the difference of the final means for each seed that both have.

    Returns:
        The difference in 0..1; None where the two have no seed in common, or one was not evaluated at its point.
    """
    if point_a not in a.final or point_b not in b.final:
        return None
    other = dict(zip(b.seeds, b.final[point_b].per_seed, strict=True))
    return difference(
        [value - other[seed] for seed, value in zip(a.seeds, a.final[point_a].per_seed, strict=True) if seed in other]
    )


def difference(values: Sequence[float]) -> Difference | None:
    """Return the mean of differences by seed with its two-sided 95 % interval, mean ± t(n - 1) · std / √n.

    Student's t interval takes the differences for independent draws of one normal distribution. None without values;
    with one there is no interval.
    """
    if not values:
        return None
    mean, std = fmean(values), _seed_std(values)
    if std is None:
        return Difference(mean, None, None, None, 1)
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2)) * std / math.sqrt(len(values))
    return Difference(mean, std, mean - half, mean + half, len(values))


def worst_decile(clients: Sequence[float]) -> float:
    """Return the mean over the lowest tenth of the clients, at least one."""
    return fmean(sorted(clients)[: max(1, len(clients) // 10)])


def comparison(name: str, results: Sequence[MethodResult], settings: dict[str, Any]) -> dict[str, Any]:
    """Return a comparison in plain values: what an overview over many comparisons needs of this one.

    Args:
        name: of the experiment.
        results: the methods, in the order in which they are shown.
        settings: what all methods share.

    Returns:
        ``name``, ``settings`` and ``methods``; of each method, by registry name, its ``title``, the `Final` of each
        evaluation point, ``traffic`` in bytes and ``seconds``, both as in `MethodResult`, the number of ``rounds``, its
        ``seeds`` with their ``run_ids``, and the ``curve`` of each point: ``rounds`` and ``by_seed``, (seeds, rounds).
    """
    return {
        "name": name,
        "settings": settings,
        "methods": {
            result.method: {
                "title": result.title,
                "final": {point: asdict(final) for point, final in result.final.items()},
                "traffic": result.traffic,
                "seconds": result.seconds,
                "rounds": result.rounds,
                "seeds": result.seeds,
                "run_ids": [run.run_id for run in result.runs],
                "curve": {
                    point: dict(zip(("rounds", "by_seed"), result.curve(point), strict=True)) for point in result.final
                },
            }
            for result in results
        },
    }


def variant(settings: dict[str, Any]) -> str:
    """Return what partition and public set are called in a folder's name: ``dirichlet-0.3-open_part``.

    Where not all clients are in a round, their number and the share that is: ``two_labels-open_part-100_clients-0.1``.
    Where some upload false predictions, which and their share: ``two_labels-open_part-flipped-0.1``.
    Where hyperparameters were tuned, that: ``two_labels-open_part-tuned``.
    Comparisons of one experiment that differ in these have reports side by side. Empty where the settings name none.
    """
    partition, public = settings.get("partition", {}), settings.get("public", {})
    scheme = partition.get("scheme")
    parts = [scheme, partition.get("alpha") if scheme == "dirichlet" else None, public.get("source")]
    if settings.get("participation", 1) < 1:
        parts += [f"{settings['clients']}_clients", settings["participation"]]
    if settings.get("adversaries", {}).get("share"):
        parts += [settings["adversaries"]["kind"], settings["adversaries"]["share"]]
    if settings.get("hyperparameters") == "tuned":
        parts.append("tuned")
    return re.sub(r"[^\w.-]+", "_", "-".join(str(part) for part in parts if part is not None)).strip("._")


def adversaries_in_words(settings: dict[str, Any]) -> list[str]:
    """Return what a report must say of adversaries: nothing without them."""
    given = settings.get("adversaries", {})
    if not given.get("share"):
        return []
    return [
        f"{100 * given['share']:g} % of the clients are adversaries and upload {given['kind']} predictions; means are "
        "over the others"
    ]


def divergences_in_words(results: "Sequence[MethodResult]") -> list[str]:
    """Return what a report must say of clients whose training diverged and that were skipped or restored."""
    times = {result.title: sum(len(t.diverged) for run in result.runs for t in run.history) for result in results}
    told = ", ".join(f"{title} {count}" for title, count in times.items() if count)
    return [f"training diverged and a client was skipped or restored: {told}"] if told else []


def local_only(results: Sequence[MethodResult]) -> MethodResult | None:
    """Return the local-only result, None where there is none."""
    return next((result for result in results if result.method == "local"), None)


def subject(results: Sequence[MethodResult]) -> MethodResult:
    """Return the method that a report is about: KT-pFL, or the first that exchanges knowledge, or local-only."""
    exchanging = [result for result in results if result.method != "local"]
    return next((result for result in exchanging if result.method == "kt_pfl"), (exchanging or list(results))[0])


def _final(runs: Sequence[FinishedRun], point: str) -> Final:
    finals = [run.honest(point) for run in runs]
    per_seed = [fmean(clients) for clients in finals]
    per_client = _by_client(run.final(point) for run in runs)
    stds, worst = [pstdev(clients) for clients in finals], [worst_decile(clients) for clients in finals]
    _, means = curve(runs, point)
    return Final(
        mean=fmean(per_seed),
        seed_std=_seed_std(per_seed),
        client_std=fmean(stds),
        per_client=per_client,
        per_seed=per_seed,
        worst_decile=fmean(worst),
        best=max(fmean(seeds) for seeds in zip(*means, strict=True)),
        client_std_spread=_seed_std(stds),
        worst_decile_spread=_seed_std(worst),
    )


def _by_client(rows: Iterable[Sequence[float]]) -> list[float]:
    return [fmean(values) for values in zip(*rows, strict=True)]


def _seed_std(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None
