"""Ranking of methods over several comparisons: Friedman's and Nemenyi's tests (Demšar, JMLR 2006, section 3.2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3
"""The smallest number of comparisons, and of methods that all of them have, for a ranking."""
ERROR = 0.05
"""The family-wise error rate of Nemenyi's test over all pairs."""


@dataclass(frozen=True)
class Ranking:
    """Methods ranked in each comparison by accuracy."""

    methods: Sequence[str]  #: (k,) names
    accuracy: Sequence[Sequence[float]]  #: (comparisons, k) accuracies, 0..1
    ranks: Sequence[float]  #: (k,) average ranks over the comparisons; 1 is best, ties get their mean rank
    p: float  #: p value of Friedman's test of the hypothesis that all methods are equal
    critical: float  #: critical difference of average ranks in Nemenyi's test at the level `ERROR`


def common(accuracy: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the methods that all comparisons have, in the order of the first. `accuracy` is as for `ranking`."""
    first, *others = accuracy.values()
    return [method for method in first if all(method in other for other in others)]


def ranking(accuracy: Mapping[str, Mapping[str, float]]) -> Ranking | None:
    """Return the ranking of the methods that all comparisons have; None for fewer than `FEWEST` of either.

    The critical difference of average ranks is q √(k (k + 1) / (6 N)) for k methods and N comparisons. Here, q is the
    95 % quantile of the studentized range of k means, divided by √2.

    Args:
        accuracy: accuracies by comparison and method, 0..1.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    methods = common(accuracy)
    n, k = len(accuracy), len(methods)
    if min(n, k) < FEWEST:
        return None
    values = [[by_method[method] for method in methods] for by_method in accuracy.values()]
    ranks = rankdata([[-value for value in row] for row in values], axis=1).mean(axis=0).tolist()
    q = float(studentized_range.ppf(1 - ERROR, k, math.inf)) / math.sqrt(2)
    differ = any(len(set(row)) > 1 for row in values)  # otherwise the test divides by zero
    p = float(friedmanchisquare(*zip(*values, strict=True)).pvalue) if differ else 1.0
    return Ranking(methods, values, ranks, p, q * math.sqrt(k * (k + 1) / (6 * n)))
