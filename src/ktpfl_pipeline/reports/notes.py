"""The notes of a comparison: its limitations, the meanings of its columns, and the origin of its numbers."""

from collections.abc import Iterable

from ktpfl_pipeline.analysis.comparison import Comparison, warnings
from ktpfl_pipeline.analysis.results import TRAINED_SHARE, FinishedRun, MethodResult
from ktpfl_pipeline.core.errors import listed
from ktpfl_pipeline.core.metrics import LEADING
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.answer import CAUSES
from ktpfl_pipeline.reports.model import without_empty


def alerts(comparison: Comparison) -> dict[str, str]:
    """Return the warnings of a comparison by kind: unequal treatment, clients left out, and the runs' own warnings."""
    unequal = inequalities(comparison)
    return {
        "Not like for like": f"{'; '.join(unequal)}." if unequal else "",
        "Left out": left_out(comparison),
        "One class": one_class(comparison),
        **warned(comparison),
    }


def warned(results: Iterable[MethodResult]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in warnings(results):
        found[each.kind] = f"{found.get(each.kind, '')} {each.text}".lstrip()
    return found


def remarks(comparison: Comparison) -> dict[str, str]:
    """Return what to know before reading a comparison: another headline or subject, and too little training."""
    return without_empty(
        {
            "Headline": other_headline(comparison),
            "Subject": other_subject(comparison),
            "Length of training": words.gaining(comparison.local) if comparison.local else "",
        }
    )


def one_class(comparison: Comparison) -> str:
    """Return how many models predict one class only, by method, if these are more than a tenth; otherwise empty.

    If all models do, the summary says so, and this is empty.
    """
    found = {method: counts for method, counts in comparison.constant.items() if 10 * counts[0] > counts[1]}
    if not found or comparison.all_constant:
        return ""
    methods = comparison.methods
    which = ", ".join(f"{number} of {every} with {methods[name].title}" for name, (number, every) in found.items())
    return f"models predict one class for all of their client's test samples, which have several: {which}. {CAUSES}"


def left_out(comparison: Comparison) -> str:
    """Return which clients are left out, because they have no value that can be compared, and why; empty if none."""
    found: dict[tuple[bool, str], list[str]] = {}
    for each in comparison.fresh.left_out:
        seed = f" (seed {each.seed})" * (max(len(result.seeds) for result in comparison) > 1)
        found.setdefault((each.whole, each.text), []).append(f"{each.client}{seed}")
    whole, partly = (
        "; ".join(f"{listed(names)}: {why}" for (of, why), names in found.items() if of == all_)
        for all_ in (True, False)
    )
    apart = " Without any other client, methods are not compared." * bool(comparison.fresh.apart)
    return words.sentences(
        f"These clients count in no number and in no figure. {whole}.{apart}" if whole else "",
        f"These clients count without these rounds, for every method. {partly}." if partly else "",
    )


def participation(run: FinishedRun) -> str:
    """Return how many clients were never trained, and what to do; empty where almost all were in some cohort."""
    if run.sampled_share >= TRAINED_SHARE:
        return ""
    return (
        f"only {100 * run.sampled_share:.0f} % of the clients were in any round's cohort, so others have a model that "
        "was never trained, and comparisons leave them out: run more rounds, or set evaluation.closing_round to true."
    )


def other_headline(comparison: Comparison) -> str:
    """Return why accuracy is the headline although ``headline`` is another measure; empty if it is the headline."""
    asked = str(comparison.settings.get("headline", "accuracy"))
    if comparison.headline == asked or asked not in LEADING:
        return ""
    lacking = ", ".join(dict.fromkeys(result.title for result in comparison if asked not in result.final))
    return (
        f"headline is {asked}, but with some seed no client has {words.MEASURES[asked].title} ({lacking}), so accuracy "
        "leads this report."
    )


def other_subject(comparison: Comparison) -> str:
    """Return which method replaces a ``subject`` that is not compared, in words; empty if the subject is compared."""
    asked, main = comparison.settings.get("subject"), comparison.main
    if len(comparison) == 1 or asked in (None, main.method):
        return ""
    return f"subject is {asked}, which is not among these methods, so {main.title} leads: add it to compare."


def final_values(comparison: Comparison) -> str:
    averaged = words.averaged(len(comparison.results[0].seeds), comparison)
    return f"{averaged} The best round is recorded with the results; it is never the headline."


def general_notes(comparison: Comparison) -> dict[str, str]:
    """Return the notes on the main table that do not belong to a column."""
    return {
        "Final values": final_values(comparison),
        "Intervals": words.INTERVALS if len(comparison) > 1 else "",
        "Bold": words.BOLD if len(comparison) > 1 and not words.too_few(len(comparison.results[0].seeds)) else "",
        words.MAJORITY.title: words.MAJORITY.meaning if comparison.majority else "",
        **words.signs(comparison),
    }


def inequalities(comparison: Comparison) -> list[str]:
    """Return the respects in which methods were treated differently, in words; empty if they were treated equally."""
    found = []
    stopped = any(result.early_stopping for result in comparison)  # all methods stop by the same rule
    for what in ("seeds",) if stopped else ("seeds", "rounds"):
        given = {result.title: words.as_text(getattr(result, what)) for result in comparison}
        if len(set(given.values())) > 1:
            found.append(f"{what} differ ({'; '.join(map(': '.join, given.items()))})")
    data: dict[int, set[str]] = {}
    for run in comparison.runs:
        data.setdefault(run.seed, set()).add(str((run.partition, run.label_counts, run.architectures)))
    if any(len(kinds) > 1 for kinds in data.values()):
        found.append("the clients' data or models differ between methods")
    waited = [r.title for r in comparison if any({*t.late} - {*t.cohort} for run in r.runs for t in run.history)]
    if 0 < len(waited) < len(comparison):
        found.append(
            f"late clients skipped rounds with {', '.join(waited)}, but trained in these rounds with other methods"
        )
    return found
