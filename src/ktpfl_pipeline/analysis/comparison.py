"""A comparison: the results of several methods on the same federations, with everything that is derived from them.

Differences are computed for each seed and then summarized over the seeds. Accuracies are in 0..1. Malicious clients are
excluded from accuracies. Each value is computed once, however often a report needs it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, wraps
from statistics import fmean
from typing import Any, TypeVar

from ktpfl_pipeline.analysis import frames
from ktpfl_pipeline.analysis.choice import Choices, picks, rule, with_choice
from ktpfl_pipeline.analysis.clients import Reached, above, means_of, reached
from ktpfl_pipeline.analysis.decisions import Decision, decisions
from ktpfl_pipeline.analysis.fresh import Fresh, fresh
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import DIGITS, Difference, holm, mean_over_clients, paired
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_LOCAL, AFTER_TRANSFER, LEADING
from ktpfl_pipeline.core.settings import Choice
from ktpfl_pipeline.core.warnings import Warned

T = TypeVar("T")
Differences = dict[str, Difference | None]
"""Differences by method; None if two methods have no common seed."""

STORED = ("title", "final", "traffic", "seconds", "rounds", "seeds", "run_ids", "curve")
"""The fields of each method's result that a comparison stores for the overview."""


def once(method: Callable[..., T]) -> Callable[..., T]:
    """Return a method of a metric, by default accuracy after transfer, whose values are computed once."""

    @wraps(method)
    def remembered(self: Any, metric: str = AFTER_TRANSFER, *more: str) -> T:
        known: dict[tuple[str, ...], T] = vars(self).setdefault("_known", {})
        if (key := (method.__name__, metric, *more)) not in known:
            known[key] = method(self, metric, *more)
        return known[key]

    return remembered


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of at least one method on the same federations. Iterating yields the results.

    A metric is a key of `MethodResult.final`: an evaluation point, for the accuracy there, or the name of a measure.
    Differences of several methods in one metric are corrected together by `holm`.

    Attributes:
        given: one result per method, with all values.
        value: what distinguishes the comparison from others of a study: the value of a sweep, or the folder of its
            report.
    """

    given: Sequence[MethodResult]
    value: Any = None

    @classmethod
    def of(cls, results: "MethodResult | Sequence[MethodResult] | Comparison") -> "Comparison":
        """Return the comparison of one or several results; a comparison is returned unchanged."""
        if isinstance(results, Comparison):
            return results
        return cls([results] if isinstance(results, MethodResult) else list(results))

    @cached_property
    def fresh(self) -> Fresh:
        """The results on the clients and rounds that count with all methods, and what is left out."""
        return fresh(self.given)

    @cached_property
    def results(self) -> Sequence[MethodResult]:
        """One result per method, without the values that are left out, see `fresh`, and with clients' choices."""
        local = next((each for each in self.fresh.results if each.method == "local"), None)
        return with_choice(self.fresh.results, local, self.choice)

    @cached_property
    def choice(self) -> Choice:
        """The rule of the clients' choice between a method's model and their own."""
        return rule(self.fresh.results[0].settings if self.given else {})

    def __iter__(self) -> Iterator[MethodResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.given)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that all methods share."""
        return self.results[0].settings

    @cached_property
    def methods(self) -> dict[str, MethodResult]:
        """The results by registry name."""
        return {result.method: result for result in self.results}

    def under(self, **settings: Any) -> "Comparison":
        """Return the comparison with changed settings on which no run depends, such as ``headline`` and ``subject``."""
        return replace(self, given=[replace(each, settings={**each.settings, **settings}) for each in self.given])

    @property
    def runs(self) -> Iterator[FinishedRun]:
        """The runs of all methods."""
        return (run for result in self.results for run in result.runs)

    @cached_property
    def local(self) -> MethodResult | None:
        """The result of local-only training; None if there is none."""
        return next((result for result in self.results if result.method == "local"), None)

    @cached_property
    def main(self) -> MethodResult:
        """The result of the method that a report is about.

        This is the method in the setting ``subject``, if it is among the results; otherwise KT-pFL; otherwise the first
        method except local-only training; otherwise local-only training.
        """
        preferred = [r for name in (self.settings.get("subject"), "kt_pfl") for r in self.results if r.method == name]
        return [*preferred, *(r for r in self.results if r is not self.local), *self.results][0]

    @cached_property
    def headline(self) -> str:
        """The metric that a report shows first.

        This is the measure in the setting ``headline`` if all results have it, and otherwise accuracy after transfer.
        """
        asked = self.settings.get("headline", "accuracy")
        return asked if asked in LEADING and all(asked in result.final for result in self.results) else AFTER_TRANSFER

    @once
    def ranked(self, metric: str) -> list[MethodResult]:
        """Return the results with a final value of a metric, in descending order of the mean. Ties keep their order."""
        known = [result for result in self.results if metric in result.final]
        return sorted(known, key=lambda result: -result.final[metric].mean)

    @once
    def leaders(self, metric: str) -> list[MethodResult]:
        """Return the methods with the highest mean. Among equal means the subject comes first, then local-only."""
        known = self.ranked(metric)
        highest = [each for each in known if round(known[0].final[metric].mean - each.final[metric].mean, DIGITS) == 0]
        return sorted(highest, key=lambda each: (each is not self.main, each is not self.local))

    @cached_property
    def best(self) -> MethodResult:
        """The first of the `leaders` in the headline."""
        return self.leaders(self.headline)[0]

    @cached_property
    def chief(self) -> list[MethodResult]:
        """The methods that figures emphasize: the report's subject, local-only, and the best after transfer."""
        found = {id(each): each for each in (self.main, self.local, self.ranked()[0]) if each}
        return list(found.values())

    @cached_property
    def baselines(self) -> list[MethodResult]:
        """The results except the report's subject and local-only training."""
        return [result for result in self.results if result is not self.main and result is not self.local]

    @once
    def gains(self, metric: str) -> Differences:
        """Return the difference of each other method to local-only in a metric; empty without local-only."""
        if self.local is None:
            return {}
        others = [each for each in self.results if each is not self.local]
        return holm({each.method: self._minus(each, self.local, metric) for each in others})

    @once
    def leads(self, metric: str, subject: str = "") -> Differences:
        """Return the difference of a method, by default the subject, to each other one except local-only training."""
        main = self.methods[subject] if subject else self.main
        others = [each for each in self.results if each is not main and each is not self.local]
        return holm({each.method: self._minus(main, each, metric) for each in others})

    @once
    def margins(self, metric: str) -> Differences:
        """Return the difference of the first of the `leaders` to each other method in a metric."""
        first = self.leaders(metric)[:1]
        others = [each for each in self.results if each not in first]
        return holm({each.method: self._minus(first[0], each, metric) for each in others} if first else {})

    def _minus(self, a: MethodResult, b: MethodResult, metric: str) -> Difference | None:
        return paired_difference(a, b, metric, self.fresh.apart)

    def clear_best(self, metric: str = AFTER_TRANSFER) -> MethodResult | None:
        """Return the best method if it is significantly better than every other method with the metric, or None."""
        margins, others = self.margins(metric), self.ranked(metric)[1:]
        clear = all((found := margins[each.method]) and found.sign > 0 for each in others if each.method in margins)
        return self.leaders(metric)[0] if others and clear and len(self.leaders(metric)) == 1 else None

    def stated(self, metric: str) -> Iterator[tuple[MethodResult, MethodResult, Difference]]:
        """Yield (a, b, a - b) in a metric: the report's subject and each baseline, and each method and local-only."""
        pairs = [(self.main, self.methods[name], found) for name, found in self.leads(metric).items()]
        if self.local:
            pairs += [(self.methods[name], self.local, found) for name, found in self.gains(metric).items()]
        return ((one, other, found) for one, other, found in pairs if found)

    @cached_property
    def architectures(self) -> list[str]:
        """The architectures of all clients in all runs, without repetition, in the order of the clients."""
        return list(dict.fromkeys(name for run in self.runs for name in run.architectures))

    @cached_property
    def gains_by_architecture(self) -> dict[str, Differences]:
        """The `gains` for the clients of each architecture; empty without local-only, or with a single architecture.

        A seed counts if at least one benign client has the architecture in both methods' runs. Differences are
        corrected for multiple comparisons within an architecture, but not across architectures.
        """
        if (local := self.local) is None or len(self.architectures) == 1:
            return {}

        def of(result: MethodResult, name: str) -> dict[int, float]:
            return means_of(result, lambda run: [n for n, each in enumerate(run.architectures) if each == name])

        others = [each for each in self.results if each is not local]
        return {
            name: holm({each.method: paired(of(each, name), of(local, name)) for each in others})
            for name in self.architectures
        }

    @cached_property
    def adaptations(self) -> dict[int, str]:
        """The evaluation points by the number of adaptation epochs, ascending; 0 is after transfer."""
        found = {int(p.removeprefix(ADAPTED)): p for r in self.results for p in r.final if p.startswith(ADAPTED)}
        return {0: AFTER_TRANSFER, **dict(sorted(found.items()))}

    @cached_property
    def majority(self) -> dict[int, float]:
        """The accuracy of the majority-class baseline by seed, mean over clients, in 0..1; empty if unknown.

        The baseline depends only on the data, so it is equal for the runs of all methods with the same seed.
        """
        runs = {run.seed: run for run in self.runs}
        if not all(run.majority for run in runs.values()):
            return {}
        return {seed: mean_over_clients(run.majority, run.adversaries) for seed, run in sorted(runs.items())}

    @cached_property
    def constant(self) -> dict[str, tuple[int, int]]:
        """The number of models that predict one class for all test samples, and of all models, by method.

        Models of all seeds are counted. A model counts if its client has test samples of several classes.
        """
        found = {}
        for result in self.results:
            predicted = [
                run.predicted[place]
                for run in result.runs
                for place, share in enumerate(run.majority)
                if run.predicted and share < 1 and place not in run.adversaries  # NaN: left out
            ]
            found[result.method] = predicted.count(1), len(predicted)
        return found

    @cached_property
    def all_constant(self) -> bool:
        """Whether every model of every method predicts one class for all test samples."""
        return all(number == every > 0 for number, every in self.constant.values())

    @cached_property
    def above_majority(self) -> bool:
        """Whether a method is above the majority-class baseline by more than chance, at some point; True if unknown.

        Chance is two standard errors of the baseline on all test samples of a method, √(m(1 - m)/n), and 0 if their
        number is unknown. If every client has one class, nothing can be above the baseline.
        """
        guesses = fmean(self.majority.values()) if self.majority else 1.0
        if guesses == 1:
            return True
        samples = max(sum(map(sum, (row for run in each.runs for row in run.confusion))) for each in self.results)
        chance = 2 * math.sqrt(guesses * (1 - guesses) / samples) if samples else 0.0
        points = {AFTER_LOCAL, *self.adaptations.values()}
        tested = [final.mean for each in self.results for point, final in each.final.items() if point in points]
        return any(above(mean, guesses + chance) for mean in tested)

    @cached_property
    def nothing_learned(self) -> bool:
        """Whether no method shows that it learned anything, so that methods cannot be compared.

        Either every model of every method predicts one class for all test samples, or no method is `above_majority` and
        no stated difference in accuracy, the headline, is significant.
        """
        unclear = self.headline == AFTER_TRANSFER and not self.above_majority
        significant = any(found.sign for _, _, found in self.stated(AFTER_TRANSFER))
        return self.all_constant or (unclear and not significant)

    @cached_property
    def frames(self) -> dict[str, Any]:
        """The unrounded numbers as pandas DataFrames, by the name of their CSV file; see `frames.of_runs`."""
        rows = {
            "differences": [
                frames.of_difference(one, other, found, point=metric)
                for metric in dict.fromkeys(metric for result in self.results for metric in result.final)
                for one, other, found in self.stated(metric)
            ],
            "architectures": [
                frames.of_difference(self.methods[method], self.local, found, architecture=name, point=AFTER_TRANSFER)
                for name, differences in self.gains_by_architecture.items()
                for method, found in differences.items()
                if self.local and found
            ],
        }
        if self.candidate and self.local:
            rows["decisions"] = [frames.of_decision(self.candidate, self.local, each) for each in self.decisions]
        chosen = ((result, self.choices(result)) for result in self.results if result is not self.local)
        rows["choices"] = [frames.of_choices(result, found) for result, found in chosen if found]
        left_out = {(each.seed, each.client): each.text for each in self.fresh.left_out if each.whole}
        return frames.of_runs(self.results, left_out) | {
            name: frames.frame(each) for name, each in rows.items() if each
        }

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the values of the comparison `name` that the overview of all comparisons needs, as plain values.

        They are ``name``; ``settings``, which all methods share; ``methods``, the fields `STORED` of each result; and
        ``warnings``, those of all runs. ``decisions`` are not read again.
        """
        stored = {each.method: replace(each, runs=[]).to_dict() for each in self.results}
        methods = {method: {part: values[part] for part in STORED} for method, values in stored.items()}
        warned = [asdict(each) for each in warnings(self)]
        made = {"decisions": [each.to_dict() for each in self.decisions]}
        return {"name": name, "settings": self.settings, "methods": methods, "warnings": warned, **made}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Comparison":
        """Return the comparison, without runs, from the values that `to_dict` returned."""
        rest = {"settings": content["settings"], "hyperparameters": {}, "runs": []}
        found = content["methods"].items()
        return cls([MethodResult.from_dict({"method": method, **values, **rest}) for method, values in found])

    def worse_off(self, result: MethodResult, point: str = AFTER_TRANSFER, by: float = 0.0) -> list[float]:
        """Return the share of clients whose accuracy at a point is below local-only's by more than `by`, by seed."""
        found = []
        for run, alone in self._beside_local(result):
            both = zip(run.final(point), alone.final(AFTER_TRANSFER), strict=True)  # NaN: not measured
            lower = [math.nan if math.isnan(x + own) else float(above(own, x + by)) for x, own in both]
            found.append(mean_over_clients(lower, run.adversaries))
        return found

    def choices(self, result: MethodResult) -> Choices | None:
        """Return what the clients' choices between a method's model and their own lead to; None without choices."""
        runs = [(picks(run, alone, self.choice), run.adversaries) for run, alone in self._beside_local(result)]
        return Choices.of(runs, self.choice.minimum)

    @cached_property
    def candidate(self) -> MethodResult | None:
        """The best method in the headline of those in which clients send something; None without one."""
        return next((each for each in self.ranked(self.headline) if each.sent), None)

    @cached_property
    def decisions(self) -> list[Decision]:
        """Each client's decision between the `candidate` and local-only; empty without one of them."""
        if self.candidate is None or self.local is None or self.nothing_learned:
            return []
        return decisions(self.candidate, self.local, self.headline, self.fresh.apart)

    def relative_work(self, result: MethodResult) -> list[float]:
        """Return backpropagated samples relative to local-only training, by common seed; empty if unknown."""
        both = [(run.work.get("samples", 0), alone.work.get("samples", 0)) for run, alone in self._beside_local(result)]
        return [own / usual for own, usual in both] if all(own and usual for own, usual in both) else []

    def to_local_only(self, result: MethodResult) -> list[Reached | None]:
        """Return when the mean accuracy reached local-only's final accuracy, by common seed; None if never."""
        return [
            reached(run, mean_over_clients(alone.final(AFTER_TRANSFER), alone.adversaries))
            for run, alone in self._beside_local(result)
        ]

    def _beside_local(self, result: MethodResult) -> Iterator[tuple[FinishedRun, FinishedRun]]:
        """Yield the pairs of a method's and local-only's runs with the same seed."""
        beside = {run.seed: run for run in self.local.runs} if self.local else {}
        return ((run, beside[run.seed]) for run in result.runs if run.seed in beside)


def warnings(results: Iterable[MethodResult]) -> list[Warned]:
    """Return the different warnings of all runs, in order."""
    return list(dict.fromkeys(each for result in results for run in result.runs for each in run.warnings))


def paired_difference(
    a: MethodResult, b: MethodResult, metric: str = AFTER_TRANSFER, without: Collection[int] = ()
) -> Difference | None:
    """Return the difference a - b in the final mean of a metric, paired by seed, in -1..1.

    Seeds in `without` are left out. Returns None if the methods have no common seed, or if one of them has no
    final value of the metric.
    """
    if metric not in a.final or metric not in b.final:
        return None
    values = [zip(each.seeds, each.final[metric].per_seed, strict=True) for each in (a, b)]
    return paired(*({seed: mean for seed, mean in each if seed not in without} for each in values))
