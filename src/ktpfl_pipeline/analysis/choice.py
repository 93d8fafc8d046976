"""Each client's choice between a method's model and its own model of local-only training, by its validation samples.

A client chooses in every evaluation of the final value, so that the accuracy of the kept models, `CHOSEN`, is averaged
like all others. The rule is `core.settings.Choice`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import DIGITS
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, CHOSEN, VALIDATION
from ktpfl_pipeline.core.settings import Choice


class Pick(NamedTuple):
    """A client's choice in one evaluation. Pairs of accuracies, in 0..1, have the method's model first."""

    client: int  # the client's position
    samples: int  # the number of its validation samples
    validation: tuple[float, float]
    test: tuple[float, float]  # NaN if the value does not count, see `fresh`
    keeps: bool  # whether the client keeps the method's model

    @property
    def accuracy(self) -> float:
        """The test accuracy of the model that the client keeps."""
        return math.nan if math.isnan(sum(self.test)) else self.test[not self.keeps]

    @property
    def differs(self) -> int:
        """1 or -1 if the method's model has the higher or the lower test accuracy; 0 if they are equal or unknown."""
        apart = round(self.test[0] - self.test[1], DIGITS)
        return (apart > 0) - (apart < 0)


def rule(settings: dict[str, object]) -> Choice:
    """Return the rule in the settings of a comparison; without a rule there is no choice."""
    evaluation = settings.get("evaluation")
    given = evaluation.get("choice") if isinstance(evaluation, dict) else None
    return Choice(**given) if given else Choice("none")


def picks(run: FinishedRun, alone: FinishedRun, how: Choice) -> dict[int, list[Pick]]:
    """Return each client's choice by round of `run`, between its models and those of local-only training.

    Empty if there is no choice, no validation samples, or a run that does not hold their numbers.
    """
    counts, found = run.samples.get(VALIDATION, []), dict[int, list[Pick]]()
    if how.by == "none" or not any(counts):
        return {}
    for ours, own in zip(reversed(run.counted), reversed(alone.counted), strict=False):
        if VALIDATION in ours.accuracy and VALIDATION in own.accuracy:
            validation, test = (
                list(zip(ours.accuracy[point], own.accuracy[point], strict=True))
                for point in (VALIDATION, AFTER_TRANSFER)
            )
            found[ours.round] = [
                Pick(place, samples, validation[place], test[place], how.keeps(*validation[place], samples))
                for place, samples in enumerate(counts)
            ]
    return found


def with_choice(results: Sequence[MethodResult], local: MethodResult | None, how: Choice) -> Sequence[MethodResult]:
    """Return the results with the evaluation point `CHOSEN`, for the methods with choices in all runs."""
    alone, changed = {run.seed: run for run in local.runs} if local else {}, list[MethodResult]()
    for each in results:
        runs = [run for one in each.runs if one.seed in alone and (run := _chosen(one, alone[one.seed], how))]
        changed.append(each.having(runs) if 0 < len(runs) == len(each.runs) else each)
    return changed


def _chosen(run: FinishedRun, alone: FinishedRun, how: Choice) -> FinishedRun | None:
    """Return a run with the accuracies of the models that clients keep; None without choices."""
    found = picks(run, alone, how)
    history = [
        replace(record, accuracy={**record.accuracy, CHOSEN: [pick.accuracy for pick in found[record.round]]})
        if record.round in found
        else record
        for record in run.history
    ]
    return replace(run, history=history) if found else None


class Choices(NamedTuple):
    """What the clients' choices between a method's model and their own lead to.

    Malicious clients do not count. Values that are left out, see `fresh`, do not count either.
    """

    keeping: list[float]  # the number of clients that keep the method's model, by seed: sum of means over evaluations
    judged: int  # the number of choices, over clients, evaluations and seeds, between models of unequal test accuracy
    right: int  # the number of these that kept the model with the higher test accuracy
    better: int  # the number of these in which the method's model had the higher test accuracy

    @classmethod
    def of(cls, runs: Sequence[tuple[dict[int, list[Pick]], Collection[int]]], minimum: int) -> "Choices | None":
        """Return the outcome of several runs' `picks`, each with the positions of malicious clients; None without."""
        by_seed = [
            [p for each in found.values() for p in each if p.client not in malicious and not math.isnan(p.accuracy)]
            for found, malicious in runs
            if found
        ]
        judged = [p for seed in by_seed for p in seed if p.samples >= minimum and p.differs]
        keeping = [
            math.fsum(fmean(p.keeps for p in seed if p.client == client) for client in {p.client for p in seed})
            for seed in by_seed
        ]
        right = sum(pick.keeps == (pick.differs > 0) for pick in judged)
        return cls(keeping, len(judged), right, sum(p.differs > 0 for p in judged)) if by_seed else None
