"""Numbers of one method's clients: means over some of them, and when their mean accuracy reached a target."""

from collections.abc import Callable, Collection, Iterable
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import DIGITS, benign
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER


class Reached(NamedTuple):
    """The first evaluated round of a run in which the mean accuracy reached a target.

    Attributes:
        rounds: the number of rounds.
        sent: the bytes that all clients sent and received up to then.
    """

    rounds: int
    sent: int


def reached(run: FinishedRun, target: float) -> Reached | None:
    """Return the first evaluated round whose mean accuracy is at least the target, and the bytes up to its end."""
    sent = 0
    for record in run.history:
        sent += sum(map(sum, record.traffic.values()))
        mean = run.means(record).get(AFTER_TRANSFER)
        if mean is not None and not above(target, mean):
            return Reached(record.round, sent)
    return None


def means(result: MethodResult, measure: str) -> list[float]:
    """Return the mean of a measure over the benign clients that have it, one value per seed with such clients."""
    found = [benign(run.measures.get(measure, []), run.adversaries) for run in result.runs]
    return [fmean(values) for values in found if values]


def of_clients(result: MethodResult, sampled: bool) -> list[float]:
    """Return the mean final accuracy of the clients that were ever sampled, or of all others, one value per seed.

    Seeds without such clients are left out.
    """

    def wanted(run: FinishedRun) -> Collection[int]:
        return run.sampled if sampled else {*range(len(run.architectures))} - {*run.sampled}

    return [*means_of(result, wanted).values()]


def means_of(result: MethodResult, wanted: Callable[[FinishedRun], Collection[int]]) -> dict[int, float]:
    """Return the mean final accuracy of the benign clients at the positions `wanted`, by seed, in 0..1.

    Seeds without such clients are left out.
    """
    found = {}
    for run in result.runs:
        places = {*range(len(run.architectures))} - {*wanted(run)}
        if values := benign(run.final(AFTER_TRANSFER), {*run.adversaries, *places}):
            found[run.seed] = fmean(values)
    return found


def constant(runs: Iterable[FinishedRun]) -> tuple[int, int]:
    """Return the number of models that predict one class, and of all models, of clients with several test classes."""
    places = [
        (run, place)
        for run in runs
        for place, share in enumerate(run.majority)
        if run.predicted and share < 1 and place not in run.adversaries  # NaN: left out
    ]
    return sum(run.predicted[place] == 1 for run, place in places), len(places)


def above(one: float, other: float) -> bool:
    """Return whether a mean is above another by more than rounding: equal accuracies may have unequal means."""
    return round(one - other, DIGITS) > 0
