"""The tables of a comparison besides the main one: one per subject, with the meaning of its columns.

Arguments that the functions share: `results`, the methods of one comparison. Each function returns no blocks where
nothing of its subject was measured.
"""

from collections.abc import Sequence

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.results import MethodResult, local_only, ranked
from ktpfl_pipeline.reports import columns, words
from ktpfl_pipeline.reports.columns import METHOD, Column, Compared
from ktpfl_pipeline.reports.headline import adapted
from ktpfl_pipeline.reports.model import Block, Table, Text
from ktpfl_pipeline.reports.tables import tinted
from ktpfl_pipeline.reports.words import plural


def _table(
    name: str, results: Sequence[MethodResult], shown: Sequence[Column], latex: str = "", without: str = ""
) -> Table:
    """Return one row per method, the best first, without one of them and the columns that are empty."""
    rows = [result for result in ranked(results) if result.method != without]
    return Table.of(name, shown, rows, Compared(results), latex=latex, tinted=tinted(results)).filled()


def adaptation(results: Sequence[MethodResult]) -> list[Block]:
    """Return accuracy after transfer and after equal extra epochs of local training, each against local-only's."""
    points = contrasts.adaptations(results)
    if len(points) < 2:
        return []
    goes_on = results[0].settings.get("on_divergence", "stop") != "stop"
    diverged = " A model whose training diverged counts with its accuracy after transfer." * goes_on
    meaning = (
        "every model, local-only's too, was trained for these extra local epochs on its client's own samples, "
        f"evaluated and discarded.{diverged} Differences are to local-only after as many extra epochs, "
        f"{words.CORRECTED}"
    )
    shown = [METHOD, *(column for epochs in points for column in columns.adapted(epochs, meaning))]
    table = _table("adaptation", results, shown, f"Accuracy after adaptation: {meaning}")
    return [Text(adapted(results)), *table.explained()]


def by_architecture(results: Sequence[MethodResult]) -> list[Block]:
    """Return each method's difference to local-only over the clients of each architecture; nothing with one of them."""
    names = contrasts.architectures(results)
    if local_only(results) is None or len(names) < 2:
        return []
    meaning = (
        "mean accuracy after transfer of the clients with an architecture minus that of the same clients with "
        f"local-only, {words.CORRECTED} Each column has few clients. It shows where a method helps one architecture "
        "and harms another, which a mean over all clients hides."
    )
    latex = f"Accuracy minus local-only by architecture: {meaning}"
    table = _table("architectures", results, columns.by_architecture(names), latex, without="local")
    return table.explained(**{"By architecture": meaning})


def fairness(results: Sequence[MethodResult]) -> list[Block]:
    """Return how evenly accuracy is spread over the clients, and how many are worse off than with local-only."""
    table = _table(
        "fairness", results, columns.FAIRNESS, "How evenly accuracy after transfer is spread over the clients."
    )
    if not table.shows("never_sampled"):
        table = table.without("sampled")
    return table.explained(
        Means=f"all columns are of accuracy after transfer{words.over_seeds(len(results[0].seeds))}."
    )


def quality(results: Sequence[MethodResult]) -> list[Block]:
    """Return what is measured besides accuracy: by class, on all clients' samples, and calibration."""
    caption = "Balanced accuracy, AUC, accuracy on all clients' samples and calibration after transfer."
    return _table("quality", results, columns.QUALITY, caption).explained()


def work(results: Sequence[MethodResult]) -> list[Block]:
    """Return steps, operations and memory, and the rounds and bytes until local-only's accuracy was reached."""
    return _table("work", results, columns.WORK, "Work: see the notes on the columns in the report.").explained()


def of_methods_own(results: Sequence[MethodResult]) -> list[Block]:
    """Return the numbers that methods report of themselves: their last values, mean over seeds."""
    seeds = plural(len(results[0].seeds), "seed")
    shown = columns.of_methods_own(results)
    meaning = f"numbers that a method reports of itself: the values of the last round, mean over {seeds}."
    return _table("metrics", results, shown).explained(**{"Own numbers": meaning}) if shown else []
