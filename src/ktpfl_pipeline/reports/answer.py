"""What came out of a comparison, bound to its intervals: in a sentence, in three numbers, and in what to do with it."""

from collections.abc import Sequence

from ktpfl_pipeline.analysis.contrasts import adaptations, against, ahead, rivals
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.analysis.roles import headline, local_only, ranked, subject
from ktpfl_pipeline.analysis.statistics import DIGITS, FEWEST_SEEDS, Difference, seeds_to_decide
from ktpfl_pipeline.reports import classes
from ktpfl_pipeline.reports.figures.forest import VERDICTS
from ktpfl_pipeline.reports.model import Tile
from ktpfl_pipeline.reports.numbers import accuracy, between, interval, megabytes, percent, points
from ktpfl_pipeline.reports.words import leading, plural, too_few

ALONE = "there is no local-only run beside it, so nothing here tells whether exchanging knowledge helped."
MOST = 100
"""Seeds beyond which it is not said how many would decide."""


def summary(results: Sequence[MethodResult]) -> str:
    """Say what came out: first of all how the report's subject stands to local-only, and whether the seeds carry it."""
    main, local, lead = subject(results), local_only(results), headline(results)
    reached = f"{accuracy(main.final[lead])} %{leading(lead)}"
    if main is local:
        return f"Local-only training reaches {reached}; no method that exchanges knowledge stands beside it."
    if local is None:
        first = f"{main.title} reaches {reached} after transfer; {ALONE}"
    else:
        found = against(local, results, lead)[main.method]
        first = _verdict(main, found, leading(lead)) + _other_point(results, main, local)
    return " ".join(filter(None, (first, _the_best(results, main, local), _the_others(results, main, local))))


def _the_best(results: Sequence[MethodResult], main: MethodResult, local: MethodResult | None) -> str:
    """Say how the highest mean stands to the subject's, where it is that of a third."""
    lead = headline(results)
    best = leaders(results, lead)[0]
    if best is main or best is local:
        return ""
    found = against(main, rivals(results), lead)[best.method]
    if found is None:
        return f"The highest mean is {best.title}'s, over other seeds."
    alike = found.ends and not found.sign
    told = "cannot be told apart from" if alike else f"is {percent(abs(found.mean))} points above"
    over = f", {between(found)}" if found.ends else ""
    return f"The highest mean is {best.title}'s; it {told} {main.title}'s{over}."


def leaders(results: Sequence[MethodResult], point: str) -> list[MethodResult]:
    """Return the methods with the highest mean; of several with equal means the subject is first, then local-only."""
    known = ranked(results, point)
    highest = [each for each in known if round(known[0].final[point].mean - each.final[point].mean, DIGITS) == 0]
    first = [each for each in (subject(results), local_only(results)) if each in highest]
    return [*first, *(each for each in highest if each not in first)] if first else highest


def _highest(results: Sequence[MethodResult], point: str) -> str:
    """Say whose mean is the highest: ``KT-pFL has the highest mean``, or that several have it."""
    titles = [each.title for each in leaders(results, point)]
    if len(titles) == 1:
        return f"{titles[0]} has the highest mean"
    return f"{', '.join(titles[:-1])} and {titles[-1]} have the same highest mean"


def _the_others(results: Sequence[MethodResult], main: MethodResult, local: MethodResult | None) -> str:
    """Name the other methods that are above or below local-only with an interval that excludes zero."""
    if local is None:
        return ""
    found_by = against(local, results, headline(results))
    others = [(each.title, found_by[each.method]) for each in results if each not in (main, local)]
    told = {
        side: ", ".join(f"{title} ({points(found.mean)})" for title, found in others if found and found.sign == sign)
        for side, sign in (("Above", 1), ("Below", -1))
    }
    return " ".join(f"{side} local-only: {names}." for side, names in told.items() if names)


def _verdict(main: MethodResult, found: Difference | None, kind: str = "") -> str:
    if found is None:
        return f"{main.title} and local-only have no seed in common, so they cannot be compared."
    together = f", corrected for {found.family} methods" if found.family > 1 else ""
    over = f"95 % interval {between(found)} over {found.seeds} seeds{together}"
    if found.ends and not found.sign:
        level = f"{main.title} and local-only cannot be told apart{kind} after transfer:"
        return f"{level} {points(found.mean)} points, {over}."
    stands = f"{percent(abs(found.mean))} points {'above' if found.mean > 0 else 'below'}"
    if not found.ends:
        stands = "level with" if round(100 * found.mean, 1) == 0 else stands
        over = f"{too_few(found.seeds)}: this decides nothing"
    return f"{main.title} is {stands} local-only{kind} after transfer, {over}."


def _other_point(results: Sequence[MethodResult], main: MethodResult, local: MethodResult) -> str:
    """Add the comparison after local training where it says something else."""
    if headline(results) != HEADLINE:  # measures are taken after transfer only
        return ""
    after, other = (against(local, results, point)[main.method] for point in (HEADLINE, "after_local"))
    if after is None or other is None:
        return ""
    one = after.ends is None  # then the means say it
    said = [(found.mean > 0) - (found.mean < 0) if one else found.sign for found in (after, other)]
    over = "" if one else f" {between(other)}"
    return f" After local training, before that, it is {points(other.mean)} points{over}." if said[0] != said[1] else ""


def tiles(results: Sequence[MethodResult]) -> list[Tile]:
    """Return the highest mean, the subject's and local-only's, each with how it stands to local-only."""
    lead, local = headline(results), local_only(results)
    best, gained = leaders(results, lead)[0], against(local, results, lead)
    roles = {"highest mean": best, "subject of this report": subject(results), "training alone": local}
    found = []
    for result in {id(each): each for each in roles.values() if each}.values():
        beside = gained.get(result.method)
        role = ", ".join(role for role, whose in roles.items() if whose is result)
        reference = "; ".join(filter(None, ("what the others are measured by", classes.beside(results))))
        note = reference if result is local else _beside(beside) if beside else ""
        found.append(Tile(result.title, role, f"{accuracy(result.final[lead])} %{leading(lead)}", note))
    return found


def _beside(found: Difference) -> str:
    return f"{interval(found)} points to local-only: {VERDICTS[found.sign][0] if found.ends else too_few(found.seeds)}"


def advice(results: Sequence[MethodResult]) -> dict[str, str]:
    """Answer what a reader asks next, as far as these runs do: which method, at what price, how many more seeds."""
    point, main, local = headline(results), subject(results), local_only(results)
    best = leaders(results, point)[0]
    lead = ahead(best, results, point)
    level = [result for result in results if result is not best and not ((found := lead[result.method]) and found.sign)]
    cheapest = min([best, *level], key=lambda result: result.sent)
    which = _highest(results, point)
    if few := too_few(len(best.seeds)):
        which += f", {few}: that may be chance."
    elif not level:
        which += ", and the seeds tell it apart from every other."
    else:
        which += f"; {plural(len(level), 'other')} cannot be told apart from it."
        if cheapest is not best:
            price = "sends nothing" if not cheapest.sent else f"{megabytes(cheapest.sent)} MB"
            which += f" The cheapest of these is {cheapest.title} ({price}; {best.title}: {megabytes(best.sent)} MB)."
    told = {"Which method": which}
    if local is None or main is local:
        return told
    gained = against(local, results, point)
    prices = {each.title: _price(each, gained[each.method]) for each in (main, best) if each is not local}
    needed = {f"{main.title} and local-only": _seeds(gained[main.method])}
    if best not in (main, local):
        needed[f"{best.title} and {main.title}"] = _seeds(against(main, rivals(results), point)[best.method])
    return {
        **told,
        "What a point costs": "; ".join(f"{title}: {price}" for title, price in prices.items()) + ".",
        "How many seeds": "; ".join(f"{pair}: {seeds}" for pair, seeds in needed.items())
        + "."
        + " Where more are named, that is if difference and spread stay." * ("would decide" in str(needed)),
    }


def _price(result: MethodResult, found: Difference | None) -> str:
    if found is None or found.sign < 1:
        return f"{megabytes(result.sent)} MB, for which no gain over local-only is shown"
    each = megabytes(result.sent / (100 * found.mean))
    return f"{each} MB for each point over local-only"


def _seeds(found: Difference | None) -> str:
    if found is None or found.ends is None:
        return f"at least {FEWEST_SEEDS}, for an interval"
    if found.sign:
        return f"decided with {found.seeds}"
    needed = seeds_to_decide(found, MOST)
    return (
        f"not even {MOST} would decide, level for most purposes"
        if needed is None
        else f"about {needed} instead of {found.seeds} would decide"
    )


def adapted(results: Sequence[MethodResult]) -> str:
    """Say what further local training changes: how the subject and the best before and after it stand to local-only.

    Empty without local-only, or where no model was adapted.
    """
    local, (epochs, point) = local_only(results), max(adaptations(results).items())
    if local is None or not epochs:
        return ""
    best = leaders(results, point)[0]
    before, after = against(local, results), against(local, results, point)
    named = {result.method: result.title for result in (subject(results), leaders(results, HEADLINE)[0], best)}
    told = ", ".join(
        f"{title} is {interval(now)} points to local-only (as it is: {interval(before[method])})"
        for method, title in named.items()
        if (now := after.get(method))
    )
    first = f"Adapted alike, by {plural(epochs, 'epoch')} of local training, {told or 'nothing can be compared'}"
    return f"{first}. Then {_highest(results, point)}, {accuracy(best.final[point])} %."
