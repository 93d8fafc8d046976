"""The decision of each client: whether a method's model is better than its own, with the evidence for it."""

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any, NamedTuple

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import (
    Difference,
    answers_variance,
    difference,
    holm,
    jackknife_variance,
    most_variance,
    on_samples,
)
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER

RELEVANT = 0.01
"""One percentage point. A client for which a gain of this size is ruled out stays alone, unless a smaller one is sure;
a client that loses no more than this does not count as one that loses."""
COLLABORATE, ALONE, OPEN = "collaborate", "stay alone", "not enough evidence"


class Pair(NamedTuple):
    """One client's values with one seed: in the run of the method, and in that of local-only training."""

    ours: FinishedRun
    alone: FinishedRun
    place: int  # the client's position in both runs

    def size(self, split: str) -> int:
        """Return the number of the client's samples of a split."""
        return self.ours.samples[split][self.place]

    @property
    def tested(self) -> str:
        """A hash of the client's test samples; if unknown, one of the seed."""
        return self.ours.tested[self.place] if self.ours.tested else f"seed {self.ours.seed}"

    @property
    def answers(self) -> list[int]:
        """For each test sample 1 or -1 if only the method's or only the own final model is right, else 0.

        Empty if the server does not know the answers.
        """
        right = [run.correct[self.place] if run.correct else "" for run in (self.ours, self.alone)]
        return [int(ours) - int(alone) for ours, alone in zip(*right, strict=True)] if all(right) else []

    def jackknife(self, metric: str) -> list[float]:
        """Return the differences in a measure without each group of the test samples; empty if unknown."""
        both = [run.jackknife.get(metric) for run in (self.ours, self.alone)]
        parts = [each[self.place] if each else [] for each in both]
        return [ours - alone for ours, alone in zip(*parts, strict=False)]

    def final(self, metric: str) -> tuple[float, float]:
        """Return both final values of the client in a metric of `Comparison`, in 0..1."""
        runs = (self.ours, self.alone)
        values = [run.final(metric) if metric in run.points else run.measures.get(metric, []) for run in runs]
        return values[0][self.place], values[1][self.place]


@dataclass(frozen=True)
class Decision:
    """A client's decision between a method and local-only training. Values are means over seeds, accuracies in 0..1."""

    client: str | int  #: its name, or its id
    samples: float  #: the number of its private samples
    classes: float | None  #: the number of classes of its private samples; None if the server does not know the labels
    test_samples: float  #: the number of its test samples
    alone: float  #: the headline with its own model
    together: float  #: the headline with the method's model
    difference: Difference  #: `together` - `alone`, corrected for the number of clients
    #: mean weights of the client's teachers, by name, descending, itself included; empty without a matrix
    teachers: dict[str | int, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain values."""
        teachers = {str(name): weight for name, weight in self.teachers.items()}
        return {**asdict(self), "teachers": teachers, "decision": self.decision}

    @property
    def decision(self) -> str:
        """What the evidence says: `COLLABORATE`, `ALONE` or `OPEN`.

        A client collaborates if the method's model is significantly better. Else it stays alone if a gain of `RELEVANT`
        is ruled out.
        """
        low, high = self.difference.ends or (-math.inf, math.inf)
        return COLLABORATE if low > 0 else ALONE if high < RELEVANT else OPEN


def decisions(result: MethodResult, local: MethodResult, metric: str, without: Collection[int] = ()) -> list[Decision]:
    """Return the decision of each benign client in a metric, the largest difference first.

    Clients without a value with both methods are left out, see `fresh`. So are the seeds in `without`, and runs that do
    not hold the clients' numbers of samples.
    """
    beside = {run.seed: run for run in local.runs if run.seed not in without and run.samples}
    pairs: dict[str | int, list[Pair]] = {}
    for run in result.runs:
        for place, name in enumerate(run.client_names if run.seed in beside else ()):
            pair = Pair(run, beside[run.seed], place)
            if place not in run.adversaries and not math.isnan(sum(pair.final(metric))):
                pairs.setdefault(name, []).append(pair)
    corrected = holm({name: _difference(own, metric) for name, own in pairs.items()})
    found = [_decision(name, pairs[name], metric, _possible(each)) for name, each in corrected.items() if each]
    return sorted(found, key=lambda each: each.alone - each.together)


def _decision(name: str | int, pairs: Sequence[Pair], metric: str, corrected: Difference) -> Decision:
    runs = [(pair.ours, pair.place) for pair in pairs]
    counts = [run.label_counts[place] for run, place in runs]
    known = all(run.labels_known for run, _ in runs)
    together, alone = (fmean(values) for values in zip(*(pair.final(metric) for pair in pairs), strict=True))
    return Decision(
        client=name,
        samples=fmean(map(sum, counts)),
        classes=fmean(sum(count > 0 for count in each) for each in counts) if known else None,
        test_samples=fmean(pair.size("test") for pair in pairs),
        alone=alone,
        together=together,
        difference=corrected,
        teachers=_teachers(runs),
    )


def _possible(found: Difference) -> Difference:
    """Return a difference whose interval does not exceed -1 and 1."""
    low, high = found.ends or (None, None)
    return found if low is None or high is None else replace(found, low=max(low, -1.0), high=min(high, 1.0))


def _difference(pairs: Sequence[Pair], metric: str) -> Difference | None:
    """Return the difference of a client's values, with the uncertainty over seeds and samples.

    If seeds have equal test samples, the part of the samples is that of the mean over seeds. Else seeds draw them from
    all samples of the client, whose number counts. Without the answers of single samples, two accuracies decide, and
    other measures have no interval.
    """
    values = [ours - alone for ours, alone in (pair.final(metric) for pair in pairs)]
    tested, same = fmean(pair.size("test") for pair in pairs), len({pair.tested for pair in pairs}) == 1
    samples = tested if same else fmean(sum(pair.ours.label_counts[pair.place]) for pair in pairs)
    parts = [pair.answers if metric == AFTER_TRANSFER else pair.jackknife(metric) for pair in pairs]
    together = [[fmean(each) for each in zip(*parts, strict=True)]] if same else parts
    if metric != AFTER_TRANSFER:
        variance = fmean(map(jackknife_variance, together))
        if math.isnan(variance):
            known = difference(values)
            return known and replace(known, low=None, high=None, p=None)
        return on_samples(values, tested * variance, samples, sum(len(each) - 1 for each in together))
    if not all(parts):
        return on_samples(
            values, fmean(most_variance(*pair.final(metric), pair.size("test")) for pair in pairs), tested
        )
    return on_samples(values, answers_variance([*chain(*together)]), samples)


def _teachers(runs: Sequence[tuple[FinishedRun, int]]) -> dict[str | int, float]:
    """Return the mean weights in a client's row of the final matrix, by name of the teacher, descending."""
    weights: dict[str | int, list[float]] = {}
    for run, place in runs:
        for name, weight in zip(run.client_names, run.coefficients[place] if run.coefficients else (), strict=False):
            weights.setdefault(name, []).append(weight)
    return dict(sorted(((name, fmean(own)) for name, own in weights.items()), key=lambda pair: -pair[1]))
