"""Means over one method's clients: of some clients, when they reached a target, and whether they still rise."""

from collections.abc import Callable, Collection
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import DIGITS, Difference, benign, difference
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, LAST

LEAST_GAIN = 0.005
"""The smallest gain in accuracy that counts, in 0..1: 0.5 percentage points."""


class Reached(NamedTuple):
    """The first evaluated round of a run in which the mean accuracy reached a target."""

    rounds: int  #: the number of rounds
    sent: int  #: the bytes that all clients sent and received up to then


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


class Gain(NamedTuple):
    """The mean accuracy over the later half of the evaluations of a final value minus that over the earlier half.

    If their number is odd, the middle evaluation is not used.
    """

    difference: Difference  #: the gain over seeds, in -1..1
    first: int  #: the round of the first evaluation
    last: int  #: the round of the last evaluation
    half: int  #: the number of evaluations in each half

    @property
    def goes_on(self) -> bool:
        """Whether the mean gain is at least `LEAST_GAIN` and, if there is an interval, significantly above zero."""
        found = self.difference
        return found.mean >= LEAST_GAIN and (found.ends is None or found.sign > 0)


def gain(result: MethodResult) -> Gain | None:
    """Return the gain in a method's accuracy after transfer over the evaluations of the final value.

    These are the evaluations in the final value of every seed, see `FinishedRun.counted`. For a result without runs,
    they are the last five evaluations of the curve. Returns None with early stopping, or with fewer than two
    evaluations.
    """
    if result.early_stopping:
        return None
    curve = result.curve[AFTER_TRANSFER]
    counted = [{record.round for record in run.counted} for run in result.runs]
    known = set.intersection(*counted) if counted else set(curve.rounds[-LAST:])
    places = [place for place, t in enumerate(curve.rounds) if t in known]
    half = len(places) // 2
    if half == 0:
        return None
    early, late = places[:half], places[-half:]
    found = difference([fmean(one[t] for t in late) - fmean(one[t] for t in early) for one in curve.by_seed])
    assert found is not None  # a result has at least one seed
    return Gain(found, curve.rounds[places[0]], curve.rounds[places[-1]], half)


def above(one: float, other: float) -> bool:
    """Return whether a mean is above another by more than rounding: equal accuracies may have unequal means."""
    return round(one - other, DIGITS) > 0
