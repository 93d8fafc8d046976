"""What each client may decide: whether to collaborate, and which of two models to keep."""

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.decisions import ALONE, COLLABORATE, OPEN, RELEVANT, Decision
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import FEWEST_SEEDS
from ktpfl_pipeline.core.errors import listed, plural
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, CHOSEN, VALIDATION
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.model import Block, Column, Table, Text
from ktpfl_pipeline.reports.numbers import Entry, Number, between, interval, mean, percent, signed
from ktpfl_pipeline.reports.tables import METHOD, MINUS_LOCAL, accuracy_at, gained_at, tinted

MOST, BRIEF = 50, 12
"""The largest numbers of clients in the report's table and in the terminal."""
TEACHERS = 3
"""The most names of teachers in a table."""


def outcome(comparison: Comparison) -> str:
    """Return how many clients should collaborate, and which, in words; empty if no decision is possible."""
    found, candidate = comparison.decisions, comparison.candidate
    if not found or candidate is None:
        return ""
    named = {each: [str(one.client) for one in found if one.decision == each] for each in (COLLABORATE, ALONE, OPEN)}
    parts = [
        f"{len(clients)} should {decision} ({listed(clients)})"
        for decision, clients in named.items()
        if clients and decision != OPEN
    ]
    best = f"{candidate.title} is the best method in which clients exchange anything."
    if not parts:
        return f"{best} There is {OPEN} for any client to decide. More seeds or more test samples may give it."
    parts += [f"for {len(named[OPEN])} there is {OPEN}"] if named[OPEN] else []
    return f"{best} With it, of {plural(len(found), 'client')}: {'; '.join(parts)}."


def decisions(comparison: Comparison) -> list[Block]:
    """Return the table of clients with their decisions between the best method and local-only training."""
    found, candidate = comparison.decisions, comparison.candidate
    if not found or candidate is None:
        return []
    half = MOST // 2
    shown = found if len(found) <= MOST else [*found[:half], *found[-half:]]
    made = table(comparison, candidate, shown)
    others = {str(run.label_counts) for run in candidate.runs}
    notes = {
        "Clients": f"the {half} with the largest and the {half} with the smallest differences are shown; decisions.csv "
        f"has all {len(found)}."
        if len(shown) < len(found)
        else "",
        "Data": "each seed gives a client other samples, so a row is a mean over different clients of the same number."
        if len(others) > 1 and not candidate.runs[0].names
        else "",
    }
    return [Text(outcome(comparison)), *made.explained(**notes)]


def brief(comparison: Comparison) -> list[Table]:
    """Return the table for the terminal, which shows few clients and few columns; nothing for more clients."""
    found, candidate = comparison.decisions, comparison.candidate
    shown = candidate is not None and 0 < len(found) <= BRIEF
    return [table(comparison, candidate, found).without("samples", "classes", "words")] if shown and candidate else []


def table(comparison: Comparison, candidate: MethodResult, found: list[Decision]) -> Table:
    """Return one row per client of `found`, the largest difference first."""
    kind = words.in_measure(comparison.headline)
    title = "Accuracy" if comparison.headline == AFTER_TRANSFER else words.MEASURES[comparison.headline].title
    shown = [
        Column("client", "Client", value=lambda each: str(each.client)),
        Column("decision", "Decision", meaning=_meaning(), value=lambda each: each.decision),
        Column("words", "In words", "points", value=in_words),  # seen on a narrow screen too
        Column("samples", "Samples", value=lambda each: Number(each.samples, "{:,.0f}".format)),
        Column("classes", "Classes", value=lambda each: each.classes and Number(each.classes, "{:.0f}".format)),
        Column("alone", f"{title} alone", "%", value=lambda each: percent(each.alone)),
        Column("together", f"{title} with {candidate.title}", "%", value=lambda each: percent(each.together)),
        Column(
            "difference",
            "Difference",
            "points",
            f"{title} with {candidate.title} minus that alone, on the client's test samples, mean over seeds. The "
            "interval has the uncertainty over seeds and over the client's samples, corrected for the number of "
            "clients; bold: it excludes zero. "
            f"{candidate.title} has the highest mean{kind} on these test samples.",
            lambda each: interval(each.difference),
        ),
        Column(
            "teachers",
            "Learns from",
            meaning=f"the teachers of a client with the largest weights in its row of the final matrix of "
            f"{candidate.title}, at most {TEACHERS}, mean over seeds. Only weights above an equal share are listed.",
            value=teachers,
        ),
    ]
    return Table.of("decisions", shown, found, latex=f"Decision of each client with {candidate.title}.").filled()


def _meaning() -> str:
    return (
        f"{COLLABORATE}: the model of the method is better by more than chance. {ALONE}: it is worse, or a gain of "
        f"{100 * RELEVANT:g} point can be ruled out. {OPEN}: gain and loss are possible; more seeds or more test "
        "samples narrow the interval."
    )


def in_words(each: Decision) -> str:
    """Return the evidence for a client's decision without terms of statistics."""
    if each.difference.ends is None:
        few = f"{plural(each.difference.seeds, 'seed')}; at least {FEWEST_SEEDS} are needed"
        return few if each.difference.seeds < FEWEST_SEEDS else "the uncertainty of its test samples is unknown"
    low, high = (100 * end for end in each.difference.ends)
    mean_ = abs(100 * each.difference.mean)
    if low > 0:
        return f"gains about {mean_:.1f}, very likely at least {low:.1f}"
    if high < 0:
        return f"loses about {mean_:.1f}, very likely at least {-high:.1f}"
    if each.decision == ALONE:
        return f"very likely gains less than {max(high, 0.1):.1f}"
    return f"may gain {high:.1f} or lose {-low:.1f}"


def teachers(each: Decision) -> Entry:
    """Return the names of a client's most important teachers with their weights; None without a matrix."""
    weights = [*each.teachers.values()]
    if not weights or min(weights) < 0 or abs(sum(weights) - 1) > 0.01:
        return None
    above = [(name, weight) for name, weight in each.teachers.items() if weight > 1.05 / len(weights)]
    named = ((("itself" if name == each.client else str(name)), weight) for name, weight in above[:TEACHERS])
    return ", ".join(f"{name} {100 * weight:.0f} %" for name, weight in named) or "all about equally"


def chosen(comparison: Comparison) -> str:
    """Return the outcome of the clients' choice by validation samples for the report's subject; empty without it."""
    main, local = comparison.main, comparison.local
    choices = comparison.choices(main) if local and main is not local else None
    gain = comparison.gains(CHOSEN).get(main.method)
    if not choices or not gain:
        return ""
    before, after = (100 * sum(shares) / len(shares) for shares in _losing(comparison, main))
    kept = sum(choices.keeping) / len(choices.keeping)
    over = f", 95 % interval {between(gain)}" if gain.ends else ""
    return (
        f"If each client keeps the better of two models by its validation samples, its own or that of {main.title}, "
        f"mean accuracy differs from local-only by {signed(gain.mean)} percentage points{over}. On average, {kept:.1f} "
        f"of {main.clients - len(main.runs[0].adversaries)} clients keep the model of {main.title}. The share of "
        f"clients that lose more than {100 * RELEVANT:g} point is {before:.0f} % before the choice and {after:.0f} % "
        "after it."
    )


def _losing(comparison: Comparison, result: MethodResult) -> list[list[float]]:
    return [comparison.worse_off(result, point, RELEVANT) for point in (AFTER_TRANSFER, CHOSEN)]


def choice(comparison: Comparison) -> list[Block]:
    """Return what a choice of each client by its validation samples leads to, or why there is none."""
    local, how = comparison.local, comparison.choice
    if local is None or how.by == "none" or len(comparison) < 2:
        return []
    counts = local.runs[0].samples.get(VALIDATION, [])
    if not any(counts):
        lacking = "no client has validation samples: set partition.validation_share above 0."
        unknown = "these runs do not hold the clients' numbers of validation samples."
        return [Text(f"No client chooses, because {lacking if counts else unknown}")]
    others = [result for result in comparison.ranked(CHOSEN) if result is not local]

    def share(which: int) -> Column:
        when = ("before", "after")[which]
        return Column(
            f"losing_{when}",
            f"Lose more than {100 * RELEVANT:g} point, {when} the choice",
            "%",
            f"share of the clients whose test accuracy is more than {100 * RELEVANT:g} point below that of local-only.",
            lambda result: mean(_losing(comparison, result)[which]),
        )

    def of(result: MethodResult, part: str) -> Entry:
        found = comparison.choices(result)
        return percent(getattr(found, part) / found.judged) if found and found.judged else None

    def keeping(result: MethodResult) -> Entry:
        found = comparison.choices(result)
        return mean(found.keeping, "{:.1f}".format) if found else None

    shown = [
        METHOD,
        accuracy_at(CHOSEN, meaning=_rule(comparison)),
        gained_at(CHOSEN, comparison, MINUS_LOCAL.title, words.CORRECTED),
        Column("keeping", "Keep the method's model", "clients", f"of {plural(local.clients, 'client')}.", keeping),
        share(0),
        share(1),
        Column(
            "right",
            "Right",
            "%",
            "of the choices between models of unequal test accuracy, the share that kept the better one.",
            lambda result: of(result, "right"),
        ),
        Column(
            "better",
            "Method's model better",
            "%",
            "of the same choices, the share in which the method's model was the better one. Without a choice, this is "
            "how often keeping it would be right.",
            lambda result: of(result, "better"),
        ),
    ]
    names = local.runs[0].client_names
    without, few = (
        [str(name) for name, count in zip(names, counts, strict=True) if low <= count < high]
        for low, high in ((0, 1), (1, how.minimum))
    )
    notes = {
        "Without validation samples": f"{listed(without)}. They have no choice and keep their own model."
        * bool(without),
        "Too few validation samples": f"{listed(few)}: fewer than {how.minimum}. They keep their own model."
        * bool(few),
        **words.signs(others),
    }
    latex = "Choice of each client by validation samples."
    made = Table.of("choice", shown, others, latex=latex, tinted=tinted(comparison))
    return [Text(chosen(comparison)), *made.filled().explained(**notes)]


def _rule(comparison: Comparison) -> str:
    """Return the rule of the choice in words, with the numbers of validation samples."""
    local, how = comparison.local, comparison.choice
    counts = sorted(count for run in local.runs for count in run.samples[VALIDATION]) if local else [0]
    margin = f" by more than {100 * how.margin:g} points" * bool(how.margin)
    numbers = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return (
        "test accuracy if each client keeps the model of the method where this is more accurate on the client's "
        f"validation samples{margin}, and else its own model of local-only. Accuracy decides, also under another "
        f"headline. Clients have {numbers} validation samples. A choice on few is often wrong."
    )
