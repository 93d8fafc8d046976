"""The notes of a comparison: its limitations, the meanings of its columns, and the origin of its numbers."""

from collections.abc import Iterable, Sequence

from ktpfl_pipeline.analysis.classes import majority
from ktpfl_pipeline.analysis.results import COVERED, HEADLINE, FinishedRun, MethodResult, headline, local_only, subject
from ktpfl_pipeline.analysis.study import warnings
from ktpfl_pipeline.core.metrics import AFTER_LOCAL, LEADING
from ktpfl_pipeline.reports import columns, paper, words
from ktpfl_pipeline.reports.headline import NO_LOCAL


def alerts(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the warnings of a comparison by kind: unequal treatment, untrained clients, and the runs' own warnings."""
    unequal = inequalities(results)
    found = {
        "Not like for like": f"{'; '.join(unequal)}." if unequal else "",
        "Participation": participation([run for result in results for run in result.runs]),
        **warned(results),
    }
    return {kind: text for kind, text in found.items() if text}


def warned(results: Iterable[MethodResult]) -> dict[str, str]:
    """Return the different warnings of all runs by kind."""
    found: dict[str, str] = {}
    for each in warnings(results):
        found[each.kind] = f"{found.get(each.kind, '')} {each.text}".lstrip()
    return found


def remarks(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return what to know before reading a comparison: another headline or subject, and too little training."""
    local = local_only(results)
    found = {
        "Headline": other_headline(results),
        "Subject": other_subject(results),
        "Length of training": words.gaining(local) if local else "",
    }
    return {term: text for term, text in found.items() if text}


def participation(runs: Sequence[FinishedRun]) -> str:
    """Return how many clients were never trained, and what to do; empty where almost all were in some cohort."""
    least = min(runs, key=lambda run: run.covered)
    if least.covered >= COVERED:
        return ""
    seed = f" with seed {least.seed}" * (len({run.covered for run in runs}) > 1)
    return (
        f"only {100 * least.covered:.0f} % of the clients were in any round's cohort{seed}, so the means count models "
        "that were never trained: compare the sampled clients in the report, run more rounds, or set "
        "evaluation.closing_round to true."
    )


def other_headline(results: Sequence[MethodResult]) -> str:
    """Return why accuracy is the headline although ``headline`` is another measure; empty if it is the headline."""
    asked = str(results[0].settings.get("headline", "accuracy"))
    if headline(results) == asked or asked not in LEADING:
        return ""
    lacking = ", ".join(dict.fromkeys(result.title for result in results if asked not in result.final))
    return (
        f"headline is {asked}, but with some seed no client has {words.MEASURES[asked].title} ({lacking}), so accuracy "
        "leads this report."
    )


def other_subject(results: Sequence[MethodResult]) -> str:
    """Return which method replaces a ``subject`` that is not compared, in words; empty if the subject is compared."""
    asked, main = results[0].settings.get("subject"), subject(results)
    if len(results) == 1 or asked in (None, main.method):
        return ""
    return f"subject is {asked}, which is not among these methods, so {main.title} leads: add it to compare."


def final_values(results: Sequence[MethodResult]) -> str:
    """Return the note on how final values are averaged."""
    averaged = words.averaged(len(results[0].seeds), results)
    return f"{averaged} The best round is recorded with the results; it is never the headline."


def meanings(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the meanings of the main table's columns that depend on the comparison, by key."""
    alike = ", ".join(result.title for result in results if _one_point(result))
    lead = headline(results)
    first = {
        HEADLINE: f"{words.OWN_MODEL} after knowledge came back by distillation or aggregation, whether the client was "
        "in the round's cohort or not."
    }
    if lead != HEADLINE:
        first[lead] = words.MEASURES[lead].meaning
    first[lead] += " This is the headline."
    one = f" Both are equal for methods in which knowledge comes back only before training: {alike}." if alike else ""
    return {
        **first,
        AFTER_LOCAL: "the same clients before any knowledge came back in that round. It can be far from accuracy "
        f"after transfer, so compare methods at the same point.{one}",
        columns.PAPER.key: papers_numbers(results),
        **({} if local_only(results) else {columns.MINUS_LOCAL.key: NO_LOCAL}),
    }


def general_notes(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the notes on the main table that do not belong to a column."""
    found = {
        "Final values": final_values(results),
        "Intervals": words.INTERVALS if len(results) > 1 else "",
        "Bold": words.BOLD if len(results) > 1 and not words.too_few(len(results[0].seeds)) else "",
        words.MAJORITY.title: words.MAJORITY.meaning if majority(results) else "",
        **words.signs(results),
    }
    return {term: text for term, text in found.items() if text}


def _one_point(result: MethodResult) -> bool:
    """Return whether a method transfers knowledge before local training, so both evaluation points are the same."""
    records = [record.accuracy for run in result.runs for record in run.evaluated]
    both = any(result.traffic.values()) and AFTER_LOCAL in result.final
    return both and all(record[AFTER_LOCAL] == record[HEADLINE] for record in records)


def papers_numbers(results: Sequence[MethodResult]) -> str:
    """Return the note on the paper's numbers: their source, or why they are not shown."""
    settings = results[0].settings
    if other := "; ".join(paper.differences(settings)):
        return f"the paper's numbers are not shown, because its setting differs: {other}."
    known = paper.cited(settings, [result.method for result in results])
    return words.LANDMARK if known else "the paper has no number for this setting."


def inequalities(results: Sequence[MethodResult]) -> list[str]:
    """Return the respects in which methods were treated differently, in words; empty if they were treated equally."""
    found = []
    stopped = any(result.early_stopping for result in results)  # all methods stop by the same rule
    for what in ("seeds",) if stopped else ("seeds", "rounds"):
        given = {result.title: words.setting(getattr(result, what)) for result in results}
        if len(set(given.values())) > 1:
            found.append(f"{what} differ ({'; '.join(map(': '.join, given.items()))})")
    data: dict[int, set[str]] = {}
    for run in (run for result in results for run in result.runs):
        data.setdefault(run.seed, set()).add(str((run.partition, run.label_counts, run.architectures)))
    if any(len(kinds) > 1 for kinds in data.values()):
        found.append("the clients' data or models differ between methods")
    waited = [r.title for r in results if any({*t.late} - {*t.cohort} for run in r.runs for t in run.history)]
    if 0 < len(waited) < len(results):
        found.append(
            f"late clients skipped rounds with {', '.join(waited)}, but trained in these rounds with other methods"
        )
    return found
