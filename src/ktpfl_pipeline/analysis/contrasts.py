"""Differences between the methods of a comparison: by seed, by client, and in the work that they take.

Every value is taken for each seed and then summarized over the seeds. Accuracies are in 0..1; no value counts malicious
clients.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, MethodResult, local_only, ranked, subject
from ktpfl_pipeline.analysis.statistics import DIGITS, Difference, benign, holm, mean_over_clients, paired
from ktpfl_pipeline.core.metrics import ADAPTED

Differences = dict[str, Difference | None]
"""By method; None where there is no common seed."""


def paired_difference(a: MethodResult, b: MethodResult, point: str = HEADLINE) -> Difference | None:
    """Return a minus b at an evaluation point, in 0..1, from the difference of the final means for each common seed.

    None where the two have no seed in common, or one was not evaluated at the point.
    """
    if point not in a.final or point not in b.final:
        return None
    return paired(*(dict(zip(each.seeds, each.final[point].per_seed, strict=True)) for each in (a, b)))


def clear_best(results: Sequence[MethodResult], point: str = HEADLINE) -> MethodResult | None:
    """Return the best method if it is above every other, paired by seed and corrected for their number (`ahead`)."""
    known = ranked(results, point)
    leads = ahead(known[0], known, point).values() if known else ()
    return known[0] if leads and all(lead and lead.sign > 0 for lead in leads) else None


def against(reference: MethodResult | None, results: Sequence[MethodResult], point: str = HEADLINE) -> Differences:
    """Return each other result minus the reference, paired by seed and corrected for their number; none without it."""
    if reference is None:
        return {}
    return holm({each.method: paired_difference(each, reference, point) for each in results if each is not reference})


def architectures(results: Sequence[MethodResult]) -> list[str]:
    """Return the architectures that any client has in any run, in the order of the clients."""
    return list(dict.fromkeys(name for result in results for run in result.runs for name in run.architectures))


def against_by_architecture(reference: MethodResult | None, results: Sequence[MethodResult]) -> dict[str, Differences]:
    """Return the differences of `against` over the clients of each architecture; empty without the reference.

    A seed counts if both methods gave the architecture to at least one benign client. Differences are corrected for
    their number within an architecture, but not across architectures.
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
    """Return by seed the mean final accuracy, in 0..1, of the clients with an architecture."""
    return _without(result, lambda run: [n for n, name in enumerate(run.architectures) if name != architecture])


def _without(result: MethodResult, others: Callable[[FinishedRun], Collection[int]]) -> dict[int, float]:
    """Return by seed the mean final accuracy, in 0..1, without the clients at some places; none where none are left."""
    found = {}
    for run in result.runs:
        if values := benign(run.final(HEADLINE), {*run.adversaries, *others(run)}):
            found[run.seed] = fmean(values)
    return found


def ahead(main: MethodResult, results: Sequence[MethodResult], point: str = HEADLINE) -> Differences:
    """Return one result minus each other, by the other's method, as `against` does."""
    return holm({each.method: paired_difference(main, each, point) for each in results if each is not main})


def baselines(results: Sequence[MethodResult]) -> list[MethodResult]:
    """Return the report's subject and the methods that it is compared with; local-only only where it is the subject."""
    main = subject(results)
    return [result for result in results if result is main or result is not local_only(results)]


def stated(
    results: Sequence[MethodResult], point: str = HEADLINE
) -> Iterator[tuple[MethodResult, MethodResult, Difference]]:
    """Yield (a, b, a - b) at a point: the report's subject minus each baseline, and each method minus local-only."""
    main, local, known = subject(results), local_only(results), {result.method: result for result in results}
    pairs = [(main, known[name], found) for name, found in ahead(main, baselines(results), point).items()]
    if local:
        pairs += [(known[name], local, found) for name, found in against(local, results, point).items()]
    return ((one, other, found) for one, other, found in pairs if found)


def adaptations(results: Sequence[MethodResult]) -> dict[int, str]:
    """Return the evaluation points by the epochs for which the models were adapted, ascending; the headline is 0."""
    points = {point for result in results for point in result.final if point.startswith(ADAPTED)}
    return {0: HEADLINE, **{e: f"{ADAPTED}{e}" for e in sorted(int(point.removeprefix(ADAPTED)) for point in points)}}


def means(result: MethodResult, measure: str) -> list[float]:
    """Return the mean over the clients that have a measure by seed, without the seeds in which no client has it."""
    found = [benign(run.measures.get(measure, []), run.adversaries) for run in result.runs]
    return [fmean(values) for values in found if values]


def worse_off(result: MethodResult, local: MethodResult) -> list[float]:
    """Return by common seed the share of the clients whose final accuracy is below theirs with local-only."""
    found = []
    for run, alone in _common(result, local):
        both = zip(run.final(HEADLINE), alone.final(HEADLINE), strict=True)  # NaN: never measured with one of them
        lower = [math.nan if math.isnan(own + without) else float(_above(without, own)) for own, without in both]
        found.append(mean_over_clients(lower, run.adversaries))
    return found


def relative_work(result: MethodResult, local: MethodResult) -> list[float]:
    """Return by common seed the samples that all clients backpropagated, in units of local-only's; empty if unknown."""
    both = [(run.work.get("samples", 0), alone.work.get("samples", 0)) for run, alone in _common(result, local)]
    return [own / usual for own, usual in both] if all(own and usual for own, usual in both) else []


def of_clients(result: MethodResult, sampled: bool) -> list[float]:
    """Return by seed the mean final accuracy of the clients that were in a cohort, or of the never-sampled clients.

    A seed without such clients has no value.
    """

    def others(run: FinishedRun) -> Collection[int]:
        return {*range(len(run.architectures))} - {*run.sampled} if sampled else run.sampled

    return [*_without(result, others).values()]


class Reached(NamedTuple):
    """When a run first had some accuracy: after how many rounds, and how many bytes of all clients, up and down."""

    rounds: int
    sent: int


def to_local_only(result: MethodResult, local: MethodResult) -> list[Reached | None]:
    """Return by common seed when the mean accuracy first was local-only's final one; None where it never was."""
    return [
        reached(run, mean_over_clients(alone.final(HEADLINE), alone.adversaries))
        for run, alone in _common(result, local)
    ]


def reached(run: FinishedRun, target: float) -> Reached | None:
    """Return the first evaluated round whose mean accuracy is at least the target, and the bytes until its end."""
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
    """Yield the runs of both with each seed that both have."""
    beside = {run.seed: run for run in other.runs}
    return ((run, beside[run.seed]) for run in result.runs if run.seed in beside)
