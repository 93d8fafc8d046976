"""Differences between the methods of a comparison: in accuracy, by seed and by client, and in computation.

Every value is computed for each seed and then summarized over the seeds. Accuracies are in 0..1. Malicious clients are
excluded from accuracies.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, MethodResult, local_only, ranked, subject
from ktpfl_pipeline.analysis.statistics import DIGITS, Difference, benign, holm, mean_over_clients, paired
from ktpfl_pipeline.core.metrics import ADAPTED

Differences = dict[str, Difference | None]
"""Differences by method; None if two methods have no common seed."""


def paired_difference(a: MethodResult, b: MethodResult, point: str = HEADLINE) -> Difference | None:
    """Return the difference a - b in final mean accuracy at an evaluation point, paired by seed, in -1..1.

    Returns None if the methods have no common seed, or if one of them was not evaluated at the point.
    """
    if point not in a.final or point not in b.final:
        return None
    return paired(*(dict(zip(each.seeds, each.final[point].per_seed, strict=True)) for each in (a, b)))


def clear_best(results: Sequence[MethodResult], point: str = HEADLINE) -> MethodResult | None:
    """Return the best method if it is significantly better than every other method, see `ahead`; otherwise None."""
    known = ranked(results, point)
    leads = ahead(known[0], known, point).values() if known else ()
    return known[0] if leads and all(lead and lead.sign > 0 for lead in leads) else None


def against(reference: MethodResult | None, results: Sequence[MethodResult], point: str = HEADLINE) -> Differences:
    """Return the differences of other results to the reference, by method, corrected by `holm`; empty without it."""
    if reference is None:
        return {}
    return holm({each.method: paired_difference(each, reference, point) for each in results if each is not reference})


def architectures(results: Sequence[MethodResult]) -> list[str]:
    """Return the architectures of all clients in all runs, without repetition, in the order of the clients."""
    return list(dict.fromkeys(name for result in results for run in result.runs for name in run.architectures))


def against_by_architecture(reference: MethodResult | None, results: Sequence[MethodResult]) -> dict[str, Differences]:
    """Return the differences of `against` for the clients of each architecture; empty without a reference.

    A seed counts if at least one benign client has the architecture in both methods' runs. Differences are corrected
    for multiple comparisons within an architecture, but not across architectures.
    """
    if reference is None:
        return {}
    others = [each for each in results if each is not reference]
    found: dict[str, Differences] = {}
    for architecture in architectures(results):
        theirs = _of_architecture(reference, architecture)
        each = {result.method: paired(_of_architecture(result, architecture), theirs) for result in others}
        found[architecture] = holm(each)
    return found


def _of_architecture(result: MethodResult, architecture: str) -> dict[int, float]:
    """Return the mean final accuracy of the benign clients with an architecture, by seed, in 0..1."""
    return _without(result, lambda run: [n for n, name in enumerate(run.architectures) if name != architecture])


def _without(result: MethodResult, others: Callable[[FinishedRun], Collection[int]]) -> dict[int, float]:
    """Return the mean final accuracy of benign clients, by seed, in 0..1, without clients at the positions `others`.

    Seeds without remaining clients are left out.
    """
    found = {}
    for run in result.runs:
        if values := benign(run.final(HEADLINE), {*run.adversaries, *others(run)}):
            found[run.seed] = fmean(values)
    return found


def ahead(main: MethodResult, results: Sequence[MethodResult], point: str = HEADLINE) -> Differences:
    """Return the differences of `main` to each other result, by the other method, corrected by `holm`."""
    return holm({each.method: paired_difference(main, each, point) for each in results if each is not main})


def baselines(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the report's subject and its baselines: all results, without local-only unless it is the subject."""
    main = subject(results)
    return [result for result in results if result is main or result is not local_only(results)]


def stated(
    results: Sequence[MethodResult], point: str = HEADLINE
) -> Iterator[tuple[MethodResult, MethodResult, Difference]]:
    """Yield (a, b, a - b) at a point: of the report's subject and each baseline, and of each method and local-only."""
    main, local, known = subject(results), local_only(results), {result.method: result for result in results}
    pairs = [(main, known[name], found) for name, found in ahead(main, baselines(results), point).items()]
    if local:
        pairs += [(known[name], local, found) for name, found in against(local, results, point).items()]
    return ((one, other, found) for one, other, found in pairs if found)


def adaptations(results: Sequence[MethodResult]) -> dict[int, str]:
    """Return the evaluation points by the number of adaptation epochs, ascending; 0 is `HEADLINE`."""
    points = {point for result in results for point in result.final if point.startswith(ADAPTED)}
    return {0: HEADLINE, **{e: f"{ADAPTED}{e}" for e in sorted(int(point.removeprefix(ADAPTED)) for point in points)}}


def means(result: MethodResult, measure: str) -> list[float]:
    """Return the mean of a measure over the benign clients that have it, one value per seed with such clients."""
    found = [benign(run.measures.get(measure, []), run.adversaries) for run in result.runs]
    return [fmean(values) for values in found if values]


def worse_off(result: MethodResult, local: MethodResult) -> list[float]:
    """Return the share of clients with a lower final accuracy than in local-only training, by common seed."""
    found = []
    for run, alone in _common(result, local):
        both = zip(run.final(HEADLINE), alone.final(HEADLINE), strict=True)  # NaN: not measured with one of them
        lower = [math.nan if math.isnan(own + without) else float(_above(without, own)) for own, without in both]
        found.append(mean_over_clients(lower, run.adversaries))
    return found


def relative_work(result: MethodResult, local: MethodResult) -> list[float]:
    """Return backpropagated samples relative to local-only training, one value per common seed; empty if unknown."""
    both = [(run.work.get("samples", 0), alone.work.get("samples", 0)) for run, alone in _common(result, local)]
    return [own / usual for own, usual in both] if all(own and usual for own, usual in both) else []


def of_clients(result: MethodResult, sampled: bool) -> list[float]:
    """Return the mean final accuracy of the clients that were ever sampled, or of all others, one value per seed.

    Seeds without such clients are left out.
    """

    def others(run: FinishedRun) -> Collection[int]:
        return {*range(len(run.architectures))} - {*run.sampled} if sampled else run.sampled

    return [*_without(result, others).values()]


class Reached(NamedTuple):
    """The point in a run at which the mean accuracy first reached a target.

    Attributes:
        rounds: the number of rounds.
        sent: the bytes that all clients sent and received up to then.
    """

    rounds: int
    sent: int


def to_local_only(result: MethodResult, local: MethodResult) -> list[Reached | None]:
    """Return when the mean accuracy reached local-only's final accuracy, one value per common seed; None if never."""
    return [
        reached(run, mean_over_clients(alone.final(HEADLINE), alone.adversaries))
        for run, alone in _common(result, local)
    ]


def reached(run: FinishedRun, target: float) -> Reached | None:
    """Return the first evaluated round whose mean accuracy is at least the target, and the bytes up to its end."""
    sent = 0
    for record in run.history:
        sent += sum(map(sum, record.traffic.values()))
        if record.accuracy and not _above(target, run.means(record)[HEADLINE]):
            return Reached(record.round, sent)
    return None


def _above(one: float, other: float) -> bool:
    """Return whether a mean is above another by more than rounding: equal accuracies may have unequal means."""
    return round(one - other, DIGITS) > 0


def _common(result: MethodResult, other: MethodResult) -> Iterator[tuple[FinishedRun, FinishedRun]]:
    """Yield the pairs of runs with the same seed."""
    beside = {run.seed: run for run in other.runs}
    return ((run, beside[run.seed]) for run in result.runs if run.seed in beside)
