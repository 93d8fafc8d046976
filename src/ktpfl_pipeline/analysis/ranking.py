"""How methods rank over several settings: Friedman's test, and Nemenyi's for pairs (Demšar, JMLR 2006, section 3.2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEWEST = 3
"""Settings, and methods that all of these have in common, without which nothing is ranked."""
ERROR = 0.05
"""Rate of false differences among all pairs."""


@dataclass(frozen=True)
class Ranking:
    """Methods ranked in each setting by accuracy."""

    methods: Sequence[str]  #: k names
    accuracy: Sequence[Sequence[float]]  #: (settings, k)
    ranks: Sequence[float]  #: (k,) average over the settings, 1 is the best; equals share the mean of their ranks
    p: float  #: of Friedman's test that all methods rank alike
    critical: float  #: the difference of average ranks from which on Nemenyi's test separates two methods at 5 %


def common(accuracy: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the methods that every setting has, in the order of the first; `accuracy` is by setting and method."""
    first, *others = accuracy.values()
    return [method for method in first if all(method in other for other in others)]


def ranking(accuracy: Mapping[str, Mapping[str, float]]) -> Ranking | None:
    """Return how the methods that all settings have in common rank; None with too few of either (`FEWEST`).

    Two methods differ from a difference of q √(k (k + 1) / 6N) of their average ranks on, q being the 95 % quantile of
    the studentized range of k means over √2, and N the number of settings.

    Args:
        accuracy: by setting and method, 0..1.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    methods = common(accuracy)
    settings, k = len(accuracy), len(methods)
    if min(settings, k) < FEWEST:
        return None
    values = [[by_method[method] for method in methods] for by_method in accuracy.values()]
    ranks = rankdata([[-value for value in row] for row in values], axis=1).mean(axis=0).tolist()
    q = float(studentized_range.ppf(1 - ERROR, k, math.inf)) / math.sqrt(2)
    differ = any(len(set(row)) > 1 for row in values)  # else the test divides by zero
    p = float(friedmanchisquare(*zip(*values, strict=True)).pvalue) if differ else 1.0
    return Ranking(methods, values, ranks, p, q * math.sqrt(k * (k + 1) / (6 * settings)))
