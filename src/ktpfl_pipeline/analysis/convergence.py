"""Whether training was long enough: does accuracy still rise over the rounds that make the final value?"""

from dataclasses import dataclass
from statistics import fmean

from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, difference
from ktpfl_pipeline.core.metrics import LAST

LEAST_GAIN = 0.005
"""A smaller gain (0.5 percentage points) counts as none."""


@dataclass(frozen=True)
class Gain:
    """The rise of accuracy over the evaluations of the final value.

    It is the mean of their later half minus that of their earlier half; of an odd number, the middle one is in neither.
    """

    difference: Difference  #: over seeds, in 0..1
    first: int  #: round of the first of these evaluations
    last: int  #: round of the last one
    half: int  #: evaluations in each half

    @property
    def goes_on(self) -> bool:
        """Whether the mean gain is at least `LEAST_GAIN` and, where the seeds give an interval, above zero in it."""
        found = self.difference
        return found.mean >= LEAST_GAIN and (found.ends is None or found.sign > 0)


def gain(result: MethodResult) -> Gain | None:
    """Return how much a method's accuracy after transfer rises over its final evaluations; None for fewer than two.

    With early stopping there is one. The evaluations are those that count in the final value of every seed
    (`FinishedRun.counted`). A result without its runs has the last five evaluations of its curve.
    """
    if result.early_stopping:
        return None
    curve = result.curve[HEADLINE]
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
