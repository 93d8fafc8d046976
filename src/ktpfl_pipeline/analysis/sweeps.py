"""One setting at several values: how a method's accuracy depends on it, and which value validation accuracy chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, difference
from ktpfl_pipeline.core.metrics import VALIDATION

CIRCUMSTANCES = ("private", "partition", "adversaries", "availability", "stragglers", "budgets", "newcomers")
"""Settings that describe a federation; they cannot be chosen."""


@dataclass(frozen=True)
class Point:
    """A sweep at one value.

    Attributes:
        value: of the swept setting.
        settings: what all methods share there.
        methods: what came out, by registry name.
    """

    value: Any
    settings: dict[str, Any]
    methods: dict[str, MethodResult]


def touched(points: Sequence[Point], method: str) -> bool:
    """Say whether the setting makes any difference to a method's accuracies or bytes; with one point it is taken to."""
    first, *others = [point.methods[method] for point in points]
    outcomes = [({at: final.per_seed for at, final in one.final.items()}, one.traffic) for one in (first, *others)]
    return not others or any(outcome != outcomes[0] for outcome in outcomes)


def chosen(points: Sequence[Point], method: str) -> Point | None:
    """Return the point with the method's highest validation accuracy, the first of equals.

    None where there is nothing to choose: no validation samples, one value, a setting that makes no difference to the
    method, or a setting that describes the samples or the clients, which cannot be chosen.
    """
    if len(points) == 1 or not touched(points, method) or not same_samples(points) or not same_circumstances(points):
        return None
    if any(VALIDATION not in point.methods[method].final for point in points):
        return None
    return max(points, key=lambda point: point.methods[method].final[VALIDATION].mean)


def same_samples(points: Sequence[Point]) -> bool:
    """Say whether the clients own as many samples of each label at all points: else validation cannot compare them."""
    first, *others = [
        [run.label_counts for result in point.methods.values() for run in result.runs] for point in points
    ]
    return all(other == first for other in others)


def same_circumstances(points: Sequence[Point]) -> bool:
    """Say whether all points have the same `CIRCUMSTANCES`."""
    return all(point.settings.get(name) == points[0].settings.get(name) for point in points for name in CIRCUMSTANCES)


def same_adversaries(points: Sequence[Point]) -> bool:
    """Say whether as many clients are adversaries at all points."""
    return len({point.settings.get("adversaries", {}).get("share", 0.0) for point in points}) == 1


def trust(result: MethodResult) -> Difference | None:
    """Return the weight that benign clients give to adversaries, in units of 1/N, over seeds; None without a matrix."""
    return difference([run.trust for run in result.runs if run.trust is not None])


def numeric(points: Sequence[Point]) -> bool:
    """Say whether all values are numbers."""
    return all(isinstance(point.value, int | float) and not isinstance(point.value, bool) for point in points)
