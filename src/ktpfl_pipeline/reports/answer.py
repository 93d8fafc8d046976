"""The outcome of a comparison with its intervals: in a summary, in three tiles, and in advice."""

from statistics import fmean

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import FEWEST_SEEDS, MOST_SEEDS, Difference, seeds_for
from ktpfl_pipeline.core.errors import listed, plural
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports.model import Tile
from ktpfl_pipeline.reports.numbers import accuracy, between, interval, megabytes, percent, signed
from ktpfl_pipeline.reports.style import VERDICTS
from ktpfl_pipeline.reports.words import in_measure, metric_title, sentences, too_few

CAUSES = (
    "Likely causes: a learning rate that is too low or too high, too few rounds or epochs, or features of very "
    "different scales."
)
NO_LOCAL = "the comparison has no local-only training, so it cannot show whether exchanging knowledge helped."


def summary(comparison: Comparison) -> str:
    """Return the outcome in words. The difference of the report's subject to local-only training comes first."""
    if comparison.nothing_learned:
        return nothing_learned(comparison)
    main, local, kind = comparison.main, comparison.local, in_measure(comparison.headline)
    reached = f"{accuracy(main.final[comparison.headline])} %{kind}"
    if main is local:
        alone = "; the comparison has no method that exchanges knowledge" * (len(comparison) == 1)
        first = f"Local-only training reaches {reached}{alone}."
    elif local is None:
        first = f"{main.title} reaches {reached} after transfer; {NO_LOCAL}"
    else:
        found = comparison.gains(comparison.headline)[main.method]
        lacking = (
            f"{main.title} and local-only training have no {'client' if comparison.fresh.apart else 'seed'} in common"
        )
        none = f"{lacking}, so they cannot be compared."
        first = _verdict(main, found, kind) + _other_point(comparison) if found else none
    low = comparison.headline == AFTER_TRANSFER and not comparison.above_majority
    known = f"Note that {_not_above_majority(comparison)}{_rare(comparison)}" if low else ""
    return sentences(known, first, _the_best(comparison), _the_others(comparison), _less_reliable(comparison))


def nothing_learned(comparison: Comparison) -> str:
    """State that no method shows that it learned anything, and what may be the cause."""
    training = comparison.settings.get("training", {})
    used = ", ".join(f"{name} {training[name]:g}" for name in ("learning_rate", "epochs") if name in training)
    found = (
        "with every method, the model of each client predicts one class for all samples, as always predicting the most "
        f"frequent class does ({percent(fmean(comparison.majority.values()))} %)."
        if comparison.all_constant
        else _not_above_majority(comparison)
    )
    return (
        f"Nothing was learned: {found} So methods cannot be compared. {CAUSES} They "
        f"were {plural(comparison.main.rounds, 'round')}{used and ', '}{used}.{_rare(comparison)}"
    )


def _not_above_majority(comparison: Comparison) -> str:
    """State that no method is above the majority-class baseline."""
    guesses, best = fmean(comparison.majority.values()), comparison.ranked()[0]
    return (
        "no method is above always predicting each client's most frequent class by more than chance: this reaches "
        f"{percent(guesses)} %, and the best method, {best.title}, {accuracy(best.final[AFTER_TRANSFER])} %."
    )


def _rare(comparison: Comparison) -> str:
    """Return a hint at balanced accuracy if most samples of the clients have one class; empty otherwise."""
    often = comparison.headline == AFTER_TRANSFER and fmean(comparison.majority.values()) > 2 / 3
    return " Where most samples have one class, `headline: balanced_accuracy` may tell more." * often


def _the_best(comparison: Comparison) -> str:
    """Compare the highest mean with the subject's mean, if neither the subject nor local-only has the highest mean."""
    best, main = comparison.best, comparison.main
    if best is main or best is comparison.local:
        return ""
    lead = comparison.leads(comparison.headline)[best.method]
    if lead is None:
        return f"{best.title} has the highest mean, over other seeds."
    found = -lead
    over = f", {between(found)}" if found.ends else ""
    other = "" if found.mean > 0 else "but with the seeds that both have it is "
    note = "; the difference is not significant" if found.ends and not found.sign else ""
    return f"{best.title} has the highest mean, {other}{_distance(found)} {main.title}{over}{note}."


def _distance(found: Difference) -> str:
    """Return a difference in words: ``3.1 percentage points above``."""
    size = percent(abs(found.mean)) if round(100 * found.mean, 1) else "less than 0.1"
    return f"{size} percentage points {'above' if found.mean > 0 else 'below'}"


def _highest(comparison: Comparison, metric: str) -> str:
    """Name the method or the methods with the highest mean: ``KT-pFL has the highest mean``."""
    titles = [each.title for each in comparison.leaders(metric)]
    if len(titles) == 1:
        return f"{titles[0]} has the highest mean"
    return f"{', '.join(titles[:-1])} and {titles[-1]} have the same highest mean"


def _the_others(comparison: Comparison) -> str:
    """Name the other methods that are significantly above or below local-only."""
    gains = comparison.gains(comparison.headline)
    others = [(each.title, gains[each.method]) for each in comparison.baselines if gains]
    named = {
        side: ", ".join(f"{title} ({signed(found.mean)})" for title, found in others if found and found.sign == sign)
        for side, sign in (("above", 1), ("below", -1))
    }
    return " ".join(f"Significantly {side} local-only: {names}." for side, names in named.items() if names)


def _less_reliable(comparison: Comparison) -> str:
    """Name the methods whose probabilities are significantly less calibrated than local-only's."""
    gains = comparison.gains("calibration_error")
    known = [(each.title, gains[each.method]) for each in comparison if each.method in gains]
    worse = [f"{title} ({signed(found.mean)})" for title, found in known if found and found.sign > 0]
    return f"Significantly larger calibration error than local-only: {listed(worse, 3)}." if worse else ""


def _verdict(main: MethodResult, found: Difference, kind: str) -> str:
    corrected = f", corrected for {found.family} methods" if found.family > 1 else ""
    over = f"95 % interval {between(found)} over {found.seeds} seeds{corrected}"
    if found.ends and not found.sign:
        between_them = f"{main.title} and local-only training do not differ significantly{kind} after transfer:"
        return f"{between_them} {signed(found.mean)} percentage points, {over}."
    same = round(100 * found.mean, 1) == 0 and not found.sign
    differ = f"{main.title} {'has the same mean as' if same else f'is {_distance(found)}'}"
    if not found.ends:
        return f"{differ} local-only training{kind} after transfer, with {too_few(found.seeds)}: it may be chance."
    return f"{differ} local-only training{kind} after transfer, a significant difference: {over}."


def _other_point(comparison: Comparison) -> str:
    """Return the comparison after local training in words if its outcome differs from the headline's outcome."""
    if comparison.headline != AFTER_TRANSFER:  # measures are taken after transfer only
        return ""
    after, other = (comparison.gains(point)[comparison.main.method] for point in (AFTER_TRANSFER, AFTER_LOCAL))
    if after is None or other is None:
        return ""
    no_interval = after.ends is None  # then the means are compared
    signs = [(found.mean > 0) - (found.mean < 0) if no_interval else found.sign for found in (after, other)]
    over = "" if no_interval else f" {between(other)}"
    before = f" After local training, before transfer, it differs by {signed(other.mean)} percentage points{over}."
    return before if signs[0] != signs[1] else ""


def tiles(comparison: Comparison) -> list[Tile]:
    """Return tiles of the method with the highest mean, the subject and local-only, with differences to local-only."""
    headline, local, gained = comparison.headline, comparison.local, comparison.gains(comparison.headline)
    roles = {
        "highest mean": comparison.best,
        "subject of the report": comparison.main,
        "local-only training": local,
    }
    reference = "the reference of all differences"
    if comparison.majority and headline == AFTER_TRANSFER:
        guesses = percent(fmean(comparison.majority.values()))
        reference += f"; always predicting the most frequent class: {guesses} %"
    found = []
    for result in {id(each): each for each in roles.values() if each}.values():
        difference = gained.get(result.method)
        role = ", ".join(role for role, whose in roles.items() if whose is result)
        note = reference if result is local else ""
        if difference:
            significant = VERDICTS[difference.sign][0] if difference.ends else too_few(difference.seeds)
            note = f"{interval(difference)} percentage points to local-only: {significant}"
        found.append(Tile(result.title, role, f"{accuracy(result.final[headline])} %{in_measure(headline)}", note))
    return found


def advice(comparison: Comparison) -> dict[str, str]:
    """Return advice from these runs: which method to choose, and how many more seeds to run."""
    headline, main, local, best = comparison.headline, comparison.main, comparison.local, comparison.best
    margins = comparison.margins(headline)
    others = [each for each in comparison if each is not best]
    close = [each for each in others if not ((found := margins[each.method]) and found.sign > 0)]
    near = [each.title for each in close if each not in comparison.leaders(headline)]
    cheapest = min([best, *close], key=lambda result: result.sent)
    which = _highest(comparison, headline)
    if few := too_few(len(best.seeds)):
        which += f", with {few}: it may be chance."
    elif not close:
        which += ", significantly above every other method."
    else:
        which += f"; not significantly below it: {listed(near, 3)}." if near else "."
        if cheapest is not best:
            price = "sends nothing" if not cheapest.sent else f"{megabytes(cheapest.sent)} MB"
            which += f" The one with the least traffic is {cheapest.title} ({price}; {best.title}: "
            which += f"{megabytes(best.sent)} MB)."
    answers = {"Which method": which}
    if local is None or main is local:
        return answers
    asked = {f"{main.title} and local-only": comparison.gains(headline)[main.method]}
    if best not in (main, local):
        asked[f"{best.title} and {main.title}"] = comparison.leads(headline)[best.method]
    told = "; ".join(f"{pair}: {_seeds(found)}" for pair, found in asked.items())
    return {**answers, "How many seeds": f"for an interval of ±1 point: {told}."}


def _seeds(found: Difference | None) -> str:
    if found is None or found.ends is None:
        return f"at least {FEWEST_SEEDS}"
    needed = seeds_for(found, 0.01)
    if needed is None:
        return f"more than {MOST_SEEDS}"
    return f"about {needed} instead of {found.seeds}" if needed > found.seeds else f"{found.seeds} are enough"


def adapted(comparison: Comparison) -> str:
    """Compare the subject and the best methods with local-only after equal extra epochs; empty without such epochs."""
    epochs, point = max(comparison.adaptations.items())
    if comparison.local is None or not epochs:
        return ""
    best = comparison.leaders(point)[0]
    before, after = comparison.gains(), comparison.gains(point)
    named = {each.method: each.title for each in (comparison.main, comparison.leaders(AFTER_TRANSFER)[0], best)}
    told = "; ".join(
        f"{title} {interval(now)} (after transfer: {interval(before[method])})"
        for method, title in named.items()
        if (now := after.get(method))
    )
    first = f"{metric_title(point)} of local training for every method, differences to local-only in percentage points:"
    margins = comparison.margins(point)
    others = [each for each in comparison if each not in comparison.leaders(point)]
    close = [each.title for each in others if (found := margins.get(each.method)) and found.ends and not found.sign]
    near = f"; not significantly below it: {listed(close, 3)}" if close else ""
    reached = f"{_highest(comparison, point)}, {accuracy(best.final[point])} %{near}."
    return f"{first} {told or 'nothing can be compared'}. {reached}"
