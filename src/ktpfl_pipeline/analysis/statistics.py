"""Means over clients and seeds, and differences with their intervals. Accuracies are in 0..1."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev

CONFIDENCE = 0.95
"""Of the intervals of differences."""


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
    """A mean over seeds with its 95 % t interval, in 0..1 if it is one of accuracies.

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
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None with one seed."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero: the seeds carry the difference. Else 0."""
        low, high = self.ends or (0.0, 0.0)
        return (low > 0) - (high < 0)


def benign(values: Sequence[float], adversaries: Collection[int]) -> list[float]:
    """Return one value a client without those of the adversaries, whose places are given."""
    return [value for place, value in enumerate(values) if place not in adversaries]


def mean_over_clients(values: Sequence[float], adversaries: Collection[int]) -> float:
    """Return the mean of one value a client over all but the adversaries, whose places are given."""
    return fmean(benign(values, adversaries))


def mean_by_place(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the mean over rows of equal length at each place: over seeds for each client or round, for example."""
    return [fmean(values) for values in zip(*rows, strict=True)]


def std_over_seeds(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None with one value."""
    return stdev(values) if len(values) > 1 else None


def worst_decile(clients: Sequence[float]) -> float:
    """Return the mean over the lowest tenth of the clients, at least one."""
    return fmean(sorted(clients)[: max(1, len(clients) // 10)])


def final(by_seed: Sequence[Sequence[float]], adversaries: Sequence[Collection[int]], best: float) -> Final:
    """Summarise the clients' final accuracies.

    Args:
        by_seed: (seeds, N) accuracy of each client.
        adversaries: for each seed, the places of the clients that no mean counts.
        best: the best round's mean over clients and seeds.
    """
    clients = [benign(values, places) for values, places in zip(by_seed, adversaries, strict=True)]
    per_seed = [fmean(values) for values in clients]
    stds, worst = [pstdev(values) for values in clients], [worst_decile(values) for values in clients]
    return Final(
        mean=fmean(per_seed),
        seed_std=std_over_seeds(per_seed),
        client_std=fmean(stds),
        per_client=mean_by_place(by_seed),
        per_seed=per_seed,
        worst_decile=fmean(worst),
        best=best,
        client_std_spread=std_over_seeds(stds),
        worst_decile_spread=std_over_seeds(worst),
    )


def difference(values: Sequence[float]) -> Difference | None:
    """Return the mean of differences by seed with its two-sided 95 % interval, mean ± t(n - 1) · std / √n.

    Student's t interval takes the differences for independent draws of one normal distribution. None without values;
    with one there is no interval.
    """
    if not values:
        return None
    mean, std = fmean(values), std_over_seeds(values)
    if std is None:
        return Difference(mean, None, None, None, 1)
    half = _half(std, len(values))
    return Difference(mean, std, mean - half, mean + half, len(values))


def seeds_to_decide(found: Difference, most: int = 100) -> int | None:
    """Return with how many seeds the interval would exclude zero if mean and deviation stayed; None beyond `most`."""
    std = found.std
    if std is None:
        return None
    return next((n for n in range(2, most + 1) if abs(found.mean) > _half(std, n)), None)


def _half(std: float, n: int) -> float:
    """Return half the width of the t interval of n values."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2)) * std / math.sqrt(n)
