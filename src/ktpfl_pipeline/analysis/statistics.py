"""Means over clients and seeds, and differences with their intervals. Accuracies are in 0..1."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev, stdev
from typing import TypeVar

CONFIDENCE = 0.95
"""Of the intervals of differences."""
FEWEST_SEEDS = 3
"""Seeds that an interval or a test needs at least: with two, t is 12.7, and intervals reach beyond 100 points."""
MOST_SEEDS = 100
"""Seeds up to which the number that would make a difference significant is stated."""
DIGITS = 12
"""Decimals of a difference that count; those after them are the rounding of float64."""
Name = TypeVar("Name")


@dataclass(frozen=True)
class Final:
    """Final accuracy of a method at one evaluation point. Adversaries count only in `per_client`."""

    mean: float  #: over seeds, of the mean over clients
    seed_std: float | None  #: sample standard deviation over seeds of the mean over clients; None with one seed
    client_std: float  #: mean over seeds of the standard deviation over the federation's clients
    per_client: list[float]  #: (N,) mean over seeds
    per_seed: list[float]  #: mean over clients for each seed, in the order of the seeds
    worst_decile: float  #: mean over seeds of the mean over the worst tenth of that seed's clients, at least one client
    best: float  #: the best round's mean over clients and seeds, recorded and never the headline
    client_std_spread: float | None = None  #: sample standard deviation over seeds of what `client_std` is the mean of
    worst_decile_spread: float | None = None  #: the same for `worst_decile`


@dataclass(frozen=True)
class Difference:
    """A mean over seeds with its 95 % t interval, in 0..1 if it is one of accuracies.

    Interval and p are None with fewer than `FEWEST_SEEDS` seeds.
    """

    mean: float  #: of the differences by seed
    std: float | None  #: their sample standard deviation; None with one seed
    low: float | None  #: lower end of the interval
    high: float | None  #: upper end
    seeds: int  #: how many seeds both have
    p: float | None = None  #: two-sided, of the t test that the mean is zero
    family: int = 1  #: how many differences interval and p are corrected for (`holm`); 1 is uncorrected
    confidence: float = CONFIDENCE  #: of the interval, above 95 % where it is corrected

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None with fewer than `FEWEST_SEEDS` seeds."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes zero, so that the difference is significant. Else 0."""
        low, high = self.ends or (0.0, 0.0)
        return (low > 0) - (high < 0)


def benign(values: Sequence[float], adversaries: Collection[int]) -> list[float]:
    """Return the values of the benign clients, without NaN, from one value per client and the adversaries' positions.

    NaN is the value of a real client that never answered an evaluation, and the AUC of samples of one class.
    """
    return [value for place, value in enumerate(values) if place not in adversaries and not math.isnan(value)]


def mean_over_clients(values: Sequence[float], adversaries: Collection[int]) -> float:
    """Return the mean of one value a client over all but the adversaries, whose places are given."""
    return fmean(benign(values, adversaries))


def mean_by_place(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the mean over rows of equal length at each place: over seeds for each client or round, for example.

    NaN, a value that was never measured, does not count; where nothing was, the mean is NaN.
    """
    known = [[value for value in values if not math.isnan(value)] for values in zip(*rows, strict=True)]
    return [fmean(values) if values else math.nan for values in known]


def std_over_seeds(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation; None with one value."""
    return stdev(values) if len(values) > 1 else None


def worst_decile(clients: Sequence[float]) -> float:
    """Return the mean over the lowest tenth of the clients, at least one."""
    return fmean(sorted(clients)[: max(1, len(clients) // 10)])


def final(clients: Sequence[Sequence[float]], per_client: list[float], best: float) -> Final:
    """Summarize final accuracies, or final values of a measure.

    Args:
        clients: for each seed, the values of the clients that count.
        per_client: (N,) each client's mean over seeds.
        best: the best round's mean over clients and seeds.
    """
    per_seed = [fmean(values) for values in clients]
    stds, worst = [pstdev(values) for values in clients], [worst_decile(values) for values in clients]
    return Final(
        mean=fmean(per_seed),
        seed_std=std_over_seeds(per_seed),
        client_std=fmean(stds),
        per_client=per_client,
        per_seed=per_seed,
        worst_decile=fmean(worst),
        best=best,
        client_std_spread=std_over_seeds(stds),
        worst_decile_spread=std_over_seeds(worst),
    )


def difference(values: Sequence[float]) -> Difference | None:
    """Return the mean of differences by seed with its two-sided 95 % interval, mean ± t(n - 1) · std / √n.

    Student's t interval takes the differences for independent draws of one normal distribution. None without values;
    fewer than `FEWEST_SEEDS` have no interval and no p. Values are rounded to `DIGITS` first: 0.3 - (0.1 + 0.2), equal
    with every seed, would have an interval that excludes zero.
    """
    if not values:
        return None
    exact = [round(value, DIGITS) for value in values]
    mean, std = fmean(exact), std_over_seeds(exact)
    if std is None or len(exact) < FEWEST_SEEDS:
        return Difference(mean, std, None, None, len(exact))
    return _at(Difference(mean, std, None, None, len(exact), _p(mean, std, len(exact))), CONFIDENCE)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Return the difference of values by seed, over the seeds that both have."""
    return difference([value - theirs[seed] for seed, value in ours.items() if seed in theirs])


def holm(found: Mapping[Name, Difference | None]) -> dict[Name, Difference | None]:
    """Return differences that are tested together, with intervals and p corrected for their number by Holm's step-down.

    Holm (1979): of m p values in ascending order the i-th is tested at 5 % / (m - i + 1), and after the first that
    fails none succeeds: the family-wise error rate is at most 5 %, however the differences depend on each other. An
    interval has the level at which its difference was tested; those after the first failure have the level of that one.
    So an interval excludes zero exactly where the test succeeds. p is the smallest error rate at which it would
    succeed. Differences without an interval are returned unchanged.
    """
    tested = [(each.p, each, name) for name, each in found.items() if each and each.p is not None]
    corrected, rate, largest, failed = dict(found), 1 - CONFIDENCE, 0.0, False
    for place, (p, each, name) in enumerate(sorted(tested, key=lambda entry: entry[0])):
        left = len(tested) - place
        rate = rate if failed else (1 - CONFIDENCE) / left
        largest, failed = max(largest, min(1.0, left * p)), failed or p > rate
        corrected[name] = replace(_at(each, 1 - rate), p=largest, family=len(tested))
    return corrected


def seeds_to_decide(found: Difference) -> int | None:
    """Return with how many seeds the interval would exclude zero if mean and deviation stayed.

    At least `FEWEST_SEEDS`; None where there is no deviation or more than `MOST_SEEDS` would be needed.
    """
    if found.std is None:
        return None
    tried = range(FEWEST_SEEDS, MOST_SEEDS + 1)
    return next((n for n in tried if abs(found.mean) > _half(found.std, n, found.confidence)), None)


def _at(found: Difference, confidence: float) -> Difference:
    half = _half(found.std or 0.0, found.seeds, confidence)
    return replace(found, low=found.mean - half, high=found.mean + half, confidence=confidence)


def _half(std: float, n: int, confidence: float) -> float:
    """Return half the width of the t interval of n values."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + confidence / 2)) * std / math.sqrt(n)


def _p(mean: float, std: float, n: int) -> float:
    """Return the two-sided p value of the t test that n values of this mean and deviation have the mean zero."""
    from scipy.special import stdtr

    if std == 0:
        return float(mean == 0)
    return 2 * float(stdtr(n - 1, -abs(mean) / std * math.sqrt(n)))
