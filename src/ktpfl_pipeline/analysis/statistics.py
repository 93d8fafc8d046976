"""Means over clients and seeds, and differences with confidence intervals. Accuracies are in 0..1."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev, pvariance, stdev
from typing import TypeVar

CONFIDENCE = 0.95
"""The confidence level of intervals, before corrections for multiple comparisons."""
FEWEST_SEEDS = 3
"""The smallest number of seeds for intervals and tests. With two seeds, t is 12.7, so intervals are too wide."""
MOST_SEEDS = 100
"""The largest number of seeds that `seeds_for` returns."""
DIGITS = 12
"""Decimal digits of mean differences and their deviations; further digits are rounding errors of float64."""
Name = TypeVar("Name")


@dataclass(frozen=True)
class Final:
    """Final accuracy of a method at one evaluation point. Adversaries are included only in `per_client`."""

    mean: float  #: mean over seeds of the mean over clients
    seed_std: float | None  #: sample standard deviation over seeds of the mean over clients; None with one seed
    client_std: float  #: mean over seeds of the population standard deviation over clients
    per_client: list[float]  #: (N,) mean over seeds
    per_seed: list[float]  #: (seeds,) mean over clients, in the order of the seeds
    worst_decile: float  #: mean over seeds of the mean over the worst tenth of the clients, at least one client
    best: float  #: mean over clients and seeds in the best round, for information only
    client_std_spread: float | None = None  #: sample standard deviation over seeds of the values behind `client_std`
    worst_decile_spread: float | None = None  #: sample standard deviation over seeds behind `worst_decile`


@dataclass(frozen=True)
class Difference:
    """The mean of differences over seeds, with a confidence interval of Student's t distribution.

    Differences of accuracies are in -1..1. Interval and p are None with fewer than `FEWEST_SEEDS` seeds.
    """

    mean: float  #: mean of the differences over seeds
    std: float | None  #: sample standard deviation of the differences; None with one seed
    low: float | None  #: lower end of the interval
    high: float | None  #: upper end of the interval
    seeds: int  #: number of common seeds
    p: float | None = None  #: p value of the two-sided t test of the hypothesis that the mean is zero
    family: int = 1  #: number of differences for which interval and p are corrected (`holm`); 1: uncorrected
    confidence: float = CONFIDENCE  #: confidence level of the interval, above 95 % after a correction

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 with one seed."""
        return (self.std or 0.0) / math.sqrt(self.seeds)

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the t distribution."""
        return self.seeds - 1

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None with fewer than `FEWEST_SEEDS` seeds."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def sign(self) -> int:
        """1 or -1 if the interval excludes zero, that is, if the difference is significant; otherwise 0."""
        low, high = self.ends or (0.0, 0.0)
        return (low > 0) - (high < 0)

    def __neg__(self) -> "Difference":
        """Return the difference in the other direction."""
        low, high = (None, None) if self.ends is None else (-self.ends[1], -self.ends[0])
        return replace(self, mean=-self.mean, low=low, high=high)


@dataclass(frozen=True)
class SampledDifference(Difference):
    """A difference whose interval includes the uncertainty of a client's test samples; see `on_samples`."""

    error: float = 0.0  #: standard error of the mean, over seeds and test samples
    freedom: float = 1.0  #: degrees of freedom of the t distribution


def benign(values: Sequence[float], adversaries: Collection[int]) -> list[float]:
    """Return the values of the benign clients, without NaN. `values` has one value per client.

    `adversaries` are positions in `values`. NaN is the value of a real client that never answered an evaluation, and
    the AUC of samples of a single class.
    """
    return [value for place, value in enumerate(values) if place not in adversaries and not math.isnan(value)]


def mean_over_clients(values: Sequence[float], adversaries: Collection[int]) -> float:
    """Return the mean of one value per client over the benign clients; `adversaries` are positions in `values`."""
    return fmean(benign(values, adversaries))


def mean_by_place(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the mean over rows of equal length at each position, such as over seeds for each client or round.

    NaN means a missing value and is ignored. If all values at a position are NaN, the mean is NaN.
    """
    known = [[value for value in values if not math.isnan(value)] for values in zip(*rows, strict=True)]
    return [fmean(values) if values else math.nan for values in known]


def std_over_seeds(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation of values over seeds; None with one value."""
    return stdev(values) if len(values) > 1 else None


def worst_decile(clients: Sequence[float]) -> float:
    """Return the mean of the lowest tenth of the values, at least one value."""
    return fmean(sorted(clients)[: max(1, len(clients) // 10)])


def final(clients: Sequence[Sequence[float]], per_client: list[float], best: float) -> Final:
    """Summarize final accuracies, or final values of a measure.

    Args:
        clients: the values of the benign clients for each seed.
        per_client: (N,) the mean over seeds of each client.
        best: the mean over clients and seeds in the best round.
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

    The interval assumes that the differences are independent samples of one normal distribution. Returns None without
    values. With fewer than `FEWEST_SEEDS` values, there is no interval and no p value. Mean and standard deviation are
    rounded to `DIGITS` digits: otherwise 0.3 - (0.1 + 0.2), equal for all seeds, would be significantly above zero.
    """
    if not values:
        return None
    mean, std = round(fmean(values), DIGITS), std_over_seeds(values)
    found = Difference(mean, std and round(std, DIGITS), None, None, len(values))
    return found if len(values) < FEWEST_SEEDS else _tested(found)


def on_samples(values: Sequence[float], variance: float, samples: float, groups: float = math.inf) -> Difference | None:
    """Return the mean of differences by seed of one client, with the uncertainty over seeds and over its samples.

    Another training changes the models, and other samples of the client change both accuracies. The squared standard
    error is the sum of both parts: s² / S + `variance` / `samples`. The degrees of freedom are those of Welch (1947)
    and Satterthwaite (1946): S - 1 if seeds dominate, and `samples`, or fewer `groups`, if samples do.

    Args:
        values: the differences, one per seed.
        variance: the variance of the difference on one sample: 1, 0 or -1.
        samples: the number of different samples on which the client was tested.
        groups: the degrees of freedom of `variance`, if it is estimated from groups of samples.
    """
    found = difference(values)
    if found is None or found.p is None:
        return found
    seeds, tests = found.error**2, variance / samples
    parts = seeds**2 / found.freedom + tests**2 / min(samples, groups)
    freedom = (seeds + tests) ** 2 / parts if parts else found.freedom
    error = math.sqrt(seeds + tests)
    return _tested(SampledDifference(found.mean, found.std, None, None, found.seeds, error=error, freedom=freedom))


def answers_variance(answers: Sequence[float]) -> float:
    """Return the variance over samples of the difference of two models' answers: 1 or -1 if only one is right, else 0.

    Two more samples, with 1 and -1, keep intervals on few samples wide enough (Bonett and Price 2012). McNemar's test
    has the same numbers.
    """
    return pvariance([*answers, 1.0, -1.0])


def jackknife_variance(values: Sequence[float]) -> float:
    """Return the variance of a number, from its values without each of several groups of samples (Tukey 1958).

    Values that are NaN are left out; with fewer than two others, the variance is NaN.
    """
    known = [value for value in values if not math.isnan(value)]
    return (len(known) - 1) * pvariance(known) if len(known) > 1 else math.nan


def most_variance(one: float, other: float, samples: int) -> float:
    """Return `answers_variance` from the two accuracies only, as if the models were right independently.

    Models that are tested on the same samples are more often right together, so this is more than the variance. Each
    accuracy is that of two more right and two more wrong answers (Agresti and Coull 1998).
    """
    shares = [(share * samples + 2) / (samples + 4) for share in (one, other)]
    return sum(share * (1 - share) for share in shares)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Return the difference `ours` - `theirs` of values by seed, over the common seeds."""
    return difference([value - theirs[seed] for seed, value in ours.items() if seed in theirs])


def holm(found: Mapping[Name, Difference | None]) -> dict[Name, Difference | None]:
    """Return differences with intervals and p values corrected for multiple comparisons by Holm's step-down method.

    This is the criterion of significance of all reports and pages: `found` are the differences of all rows of a table's
    column. What is called significant, is bold, or has a filled mark or a color excludes zero after this correction.

    Holm (1979): of m p values in ascending order, the i-th is tested at the level 5 % / (m - i + 1). After the first
    test that is not significant, no further test is. The family-wise error rate is at most 5 % under any dependence.

    An interval has the level of its test. Equal p values all have the level of the first of them, so that the order of
    `found` does not matter. Intervals after the first failed test have the level of that test. An interval therefore
    excludes zero exactly if its difference is significant. The corrected p value is the smallest family-wise error rate
    at which the difference is significant. Differences without an interval are unchanged.
    """
    tested = {name: each for name, each in found.items() if each and each.p is not None}
    ps = step_down({name: each.p for name, each in tested.items() if each.p is not None})
    corrected, rate, failed = dict(found), 1 - CONFIDENCE, False
    before: float | None = None
    for place, (name, p) in enumerate(ps.items()):
        rate = rate if failed or tested[name].p == before else (1 - CONFIDENCE) / (len(ps) - place)
        failed, before = failed or p > 1 - CONFIDENCE, tested[name].p
        corrected[name] = replace(_at(tested[name], 1 - rate), p=p, family=len(ps))
    return corrected


def step_down(ps: Mapping[Name, float]) -> dict[Name, float]:
    """Return p values corrected by Holm's step-down method, in ascending order: the running maximum of (m + 1 - i) p_i.

    A corrected p value is the smallest family-wise error rate at which the test is significant.
    """
    corrected, largest = dict[Name, float](), 0.0
    for place, (name, p) in enumerate(sorted(ps.items(), key=lambda entry: entry[1])):
        corrected[name] = largest = max(largest, min(1.0, (len(ps) - place) * p))
    return corrected


def equivalence(found: Difference, margin: float) -> float | None:
    """Return the p value of the hypothesis that the mean is not between -margin and margin; None without an interval.

    Two one-sided t tests (Schuirmann 1987): the larger p value of "at most -margin" and "at least margin". It is below
    5 % exactly if the 90 % interval lies between -margin and margin.
    """
    if found.p is None:
        return None
    return _one_sided(margin - abs(found.mean), found)


def seeds_for(found: Difference, half: float) -> int | None:
    """Return the number of seeds with which half the interval's width is at most `half`, for an unchanged deviation.

    The number is at least `FEWEST_SEEDS`. Returns None if the deviation is unknown, or if the number would exceed
    `MOST_SEEDS`. It does not depend on the mean: the number that would make the present difference significant would
    invite to stop there.
    """
    if found.std is None:
        return None
    tried = range(FEWEST_SEEDS, MOST_SEEDS + 1)
    return next((n for n in tried if _half(replace(found, seeds=n), found.confidence) <= half), None)


def _tested(found: Difference) -> Difference:
    """Return a difference with its two-sided p value for mean zero, and its 95 % interval."""
    return _at(replace(found, p=min(1.0, 2 * _one_sided(abs(found.mean), found))), CONFIDENCE)


def _at(found: Difference, confidence: float) -> Difference:
    half = _half(found, confidence)
    return replace(found, low=found.mean - half, high=found.mean + half, confidence=confidence)


def _half(found: Difference, confidence: float) -> float:
    """Return half the width of a difference's t interval."""
    from scipy.special import stdtrit

    return float(stdtrit(found.freedom, 0.5 + confidence / 2)) * found.error


def _one_sided(mean: float, found: Difference) -> float:
    """Return the p value of the hypothesis that a mean with the error of `found` is at most zero."""
    from scipy.special import stdtr

    return float(stdtr(found.freedom, -mean / found.error)) if found.error else float(mean <= 0)
