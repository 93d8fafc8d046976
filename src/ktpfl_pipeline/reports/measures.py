"""What a comparison says beside the mean accuracy: one small table a subject, with what its columns mean.

Arguments that the functions share: `results`, the methods of one comparison. Each function returns no blocks where
nothing of its subject was measured.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.analysis.roles import local_only, ranked
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.reports.answer import adapted
from ktpfl_pipeline.reports.model import Block, Notes, Table, Text
from ktpfl_pipeline.reports.numbers import Entry, Number, accuracy, interval, mean, percent, three_digits
from ktpfl_pipeline.reports.style import architecture_title
from ktpfl_pipeline.reports.tables import marked, tinted
from ktpfl_pipeline.reports.words import over_seeds, plural

QUALITY = {
    "balanced_accuracy": (
        "Balanced accuracy (%)",
        "mean over the classes of a client's test samples of the share recognised; rare classes count like frequent.",
    ),
    "macro_f1": ("Macro F1 (%)", "mean over the same classes of the harmonic mean of precision and recall."),
    "global_accuracy": (
        "Global accuracy (%)",
        "each client's model on test samples of all clients together: what it knows beyond its own task.",
    ),
    "auc": (
        "AUC (%)",
        "area under the ROC curve times 100, one class against the rest, mean over the classes that some but not all "
        "of a client's test samples have; equal scores count one half. A client with one class has no AUC and does not "
        "count.",
    ),
    "calibration_error": (
        "Calibration error (%)",
        "expected calibration error: mean distance of confidence and accuracy over 15 bins of confidence, weighted by "
        "their samples. 0: of predictions made with 80 % confidence 80 % are right.",
    ),
}
"""Column and meaning of each measure of the models that a round's record may have."""
TESTED = ("auc", "calibration_error")
"""Measures whose differences to local-only are tested."""


def adaptation(results: Sequence[MethodResult]) -> list[Block]:
    """Return the accuracy as it is and after equal epochs of local training, each against local-only adapted alike."""
    local, points = local_only(results), contrasts.adaptations(results)
    gained = {point: contrasts.against(local, results, point) for point in points.values()}

    def row(result: MethodResult) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for epochs, point in points.items():
            when = f"after {plural(epochs, 'epoch')}" if epochs else "as it is"
            found[f"{when} (%)".capitalize()] = accuracy(result.final.get(point))
            found[f"Minus local-only {when} (points)"] = interval(gained[point].get(result.method))
        return found

    diverged = (
        "" if results[0].settings.get("on_divergence", "stop") == "stop" else " One that diverged counts as it was."
    )
    meaning = (
        "every model, local-only's too, was trained for so many further epochs on its client's own samples, evaluated, "
        f"and thrown away.{diverged} Differences are to local-only adapted alike, {words.CORRECTED}"
    )
    table = _table("adaptation", results, row, f"Accuracy after adaptation: {meaning}")
    return [Text(adapted(results)), table, Notes({"After epochs": meaning})] if len(points) > 1 else []


def by_architecture(results: Sequence[MethodResult]) -> list[Block]:
    """Return each method's difference to local-only over the clients of each architecture; nothing with one of them."""
    local, names = local_only(results), contrasts.architectures(results)
    if local is None or len(names) < 2:
        return []
    found = {**contrasts.against_by_architecture(local, results), "": contrasts.against(local, results)}
    titles = {"": "All clients (points)", **{name: f"{architecture_title(name)} (points)" for name in names}}

    def row(result: MethodResult) -> dict[str, Entry]:
        return {titles[name]: interval(differences.get(result.method)) for name, differences in found.items()}

    rivals = [result for result in results if result is not local]
    table = _table("architectures", rivals, row, f"Accuracy minus local-only by architecture. {_BY_ARCHITECTURE}")
    return [table, Notes({"By architecture": _BY_ARCHITECTURE})] if table.rows else []


_BY_ARCHITECTURE = (
    "mean accuracy after transfer of the clients with an architecture minus that of the same clients with local-only, "
    f"{words.CORRECTED} Columns have few clients each: where a mean hides that a method helps one architecture and "
    "harms another, it shows here."
)


def fairness(results: Sequence[MethodResult]) -> list[Block]:
    """Return how evenly accuracy is spread over the clients, and who loses by taking part."""
    local, seeds = local_only(results), len(results[0].seeds)
    counted = results[0].clients - len(results[0].runs[0].adversaries)

    def row(result: MethodResult) -> dict[str, Entry]:
        final = result.final[HEADLINE]
        return {
            "Spread over clients (points)": percent(final.client_std, final.client_std_spread),
            "Worst decile (%)": percent(final.worst_decile, final.worst_decile_spread),
            "Harmed (%)": mean(contrasts.harmed(result, local)) if local and result is not local else None,
            "Sampled (%)": mean(contrasts.of_clients(result, True)),
            "Never sampled (%)": mean(contrasts.of_clients(result, False)),
        }

    table = _table("fairness", results, row, "How evenly accuracy after transfer is spread over the clients.")
    notes = {
        "Spread over clients": "standard deviation over the clients, in every seed.",
        "Worst decile": f"mean over the lowest tenth ({plural(max(1, counted // 10), 'client')}), in every seed.",
        "Harmed": "share of the clients whose accuracy is below theirs with local-only and the same seed, by however "
        "little. Where a method does neither good nor harm, chance makes it about half of those that differ.",
        "Sampled, never sampled": "clients that were in at least one round's cohort, and the others, which have what "
        "the server would send them today; over the seeds that have such clients.",
        "Means": f"all columns are of accuracy after transfer{over_seeds(seeds)}.",
    }
    if "Harmed (%)" not in table.columns:
        del notes["Harmed"]
    if "Never sampled (%)" not in table.columns:
        table = table.without("Sampled (%)")
        del notes["Sampled, never sampled"]
    return [table, Notes(notes)]


def quality(results: Sequence[MethodResult]) -> list[Block]:
    """Return what else is known of the predictions: by class, beyond the client's own task, and of their confidence."""

    def row(result: MethodResult) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for name, (title, _) in QUALITY.items():
            found[title] = mean(contrasts.means(result, name))
            if name in gained:
                gain = gained[name].get(result.method)
                found[f"{title.removesuffix(' (%)')} minus local-only (points)"] = interval(gain)
        return found

    gained = {name: contrasts.against(local_only(results), results, name) for name in TESTED}
    table = _table("quality", results, row, "Balanced accuracy, AUC, generalisation and calibration after transfer.")
    explained = _explained(table, dict(QUALITY.values()))
    differ = any("minus local-only" in column for column in table.columns)
    return [*explained, *([Notes({"Minus local-only": words.CORRECTED})] if differ else [])]


def work(results: Sequence[MethodResult]) -> list[Block]:
    """Return what the accuracy took: steps, arithmetic, memory, and rounds and bytes until it was local-only's."""
    local, clients = local_only(results), results[0].clients

    def row(result: MethodResult) -> dict[str, Entry]:
        flops = [run.work.get("flops", 0) for run in result.runs]
        return {
            SAMPLES: mean(contrasts.relative_work(result, local), "{:.2f}".format) if local else None,
            FLOPS: mean([each / clients / 1e9 for each in flops], three_digits) if any(flops) else None,
            MEMORY: mean([fmean(run.memory) / 1e6 for run in result.runs if run.memory], three_digits),
            **(_reached(result, local) if local and result is not local else {}),
        }

    table = _table("work", results, row, "What the accuracy took: see the columns' notes in the report.")
    return _explained(table, WORK)


SAMPLES, FLOPS = "Samples backpropagated (× local-only)", "FLOPs (10⁹ a client)"
MEMORY = "Memory (MB a client)"
ROUNDS, BYTES = "Rounds to local-only's accuracy", "Traffic to local-only's accuracy (MB)"
WORK = {
    SAMPLES: "private and public samples that the clients took steps on, over all rounds, in units of local-only's "
    "with the same seed.",
    FLOPS: "floating-point operations of these steps, over all rounds, mean over clients, counted as PyTorch's counter "
    "does.",
    MEMORY: "of a step of plain local training, mean over clients, estimated: weights to activations.",
    ROUNDS: "the first round whose mean accuracy was at least local-only's final one with the same seed, mean over the "
    "seeds that came so far; in brackets how many did.",
    BYTES: "what all clients had sent and received by then.",
}
"""What the columns of `work` mean."""


def _reached(result: MethodResult, local: MethodResult) -> dict[str, Entry]:
    """Return after how many rounds and how much traffic a method first was as accurate as local-only ends."""
    by_seed = contrasts.to_local_only(result, local)
    found = [each for each in by_seed if each]
    if not found:
        return {ROUNDS: "not reached", BYTES: "not reached"}
    part = "" if len(found) == len(by_seed) else f" ({len(found)} of {len(by_seed)})"
    rounds, sent = fmean(each.rounds for each in found), fmean(each.sent for each in found) / 1e6
    return {
        ROUNDS: Number(rounds, lambda value: f"{f'{value:.1f}'.removesuffix('.0')}{part}"),
        BYTES: Number(sent, lambda value: f"{three_digits(value)}{part}"),
    }


def _table(
    name: str, results: Sequence[MethodResult], row: Callable[[MethodResult], Mapping[str, Entry]], latex: str
) -> Table:
    """Return a row a method, the best first, without the columns in which nothing stands."""
    rows = [{"Method": marked(result), **row(result)} for result in ranked(results)]
    return Table.of(name, rows, latex, tinted(results)).filled()


def _explained(table: Table, meanings: Mapping[str, str]) -> list[Block]:
    """Return a table with what its columns mean; nothing where it has no columns but names."""
    notes = {title.partition(" (")[0]: text for title, text in meanings.items() if title in table.columns}
    return [table, Notes(notes)] if notes else []
