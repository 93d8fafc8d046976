"""A check whether training was long enough: whether accuracy still rises over the evaluations of the final value."""

from dataclasses import dataclass
from statistics import fmean

from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, difference
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, LAST

LEAST_GAIN = 0.005
"""The smallest gain in accuracy that counts, in 0..1: 0.5 percentage points."""


@dataclass(frozen=True)
class Gain:
    """The rise of accuracy over the evaluations of the final value.

    The gain is the mean over the later half of these evaluations minus the mean over the earlier half. If their number
    is odd, the middle evaluation is not used.
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
