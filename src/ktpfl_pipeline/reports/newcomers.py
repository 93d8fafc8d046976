"""What became of clients that were held out of training and joined after it."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, local_only
from ktpfl_pipeline.analysis.statistics import difference, std_over_seeds
from ktpfl_pipeline.core.newcomers import Newcomers
from ktpfl_pipeline.reports.model import Block, Table, Text
from ktpfl_pipeline.reports.numbers import Entry, Number, interval, megabytes, percent
from ktpfl_pipeline.reports.words import INTERVAL, over_seeds, plural


def blocks(results: Sequence[MethodResult]) -> list[Block]:
    """Return the table of newcomers with its caption; nothing where no client was held out."""
    found = [joined for result in results for joined in joined_by_seed(result).values()]
    if not found:
        return []
    clients, there = len(found[0].clients), len(next(iter(found[0].there.values())))
    seeds = max(len(result.seeds) for result in results)
    caption = (
        f"{plural(clients, 'client')} held out of training, drawn by seed, joined the {there} others after the last "
        "round. Test accuracy, mean over them, after so many epochs of local training, ± the standard deviation over "
        "seeds; minus that of local-only's newcomers, which begin with initial models, "
        f"{INTERVAL} There: the clients that were there, after as many further epochs. Joining (MB): all bytes of "
        f"joining, up and down{over_seeds(seeds)}."
    )
    return [newcomer_table(results, caption), Text(caption)]


def newcomer_table(results: Sequence[MethodResult], latex: str = "") -> Table:
    """Return one row a method: its newcomers and the clients that were there by epochs, and the bytes of joining."""
    local, rows = local_only(results), []
    for result in results:
        if not (runs := joined_by_seed(result)):
            continue
        alone = {} if local is None or local is result else joined_by_seed(local)
        row: dict[str, Entry] = {"Method": result.title}
        for e in next(iter(runs.values())).accuracy:
            after = "as they joined" if e == 0 else f"after {plural(e, 'epoch')}"
            means = {seed: fmean(joined.accuracy[e]) for seed, joined in runs.items()}
            gains = [mean - fmean(alone[seed].accuracy[e]) for seed, mean in means.items() if seed in alone]
            row[f"Newcomers {after} (%)"] = _percent(means.values())
            row[f"Minus local-only {after} (points)"] = interval(difference(gains))
            row[f"There {after} (%)".replace("as they joined", "as they are")] = _percent(
                fmean(joined.there[e]) for joined in runs.values()
            )
        row["Joining (MB)"] = megabytes(fmean(sum(joined.traffic.values()) for joined in runs.values()))
        rows.append(row)
    return Table.of("newcomers", rows, latex)


def joined_by_seed(result: MethodResult) -> dict[int, Newcomers]:
    """Return what became of a method's newcomers, by seed; empty where nobody was held out."""
    runs: list[FinishedRun] = result.runs
    return {run.seed: run.newcomers for run in runs if run.newcomers is not None}


def _percent(values: Iterable[float]) -> Number:
    means = list(values)
    return percent(fmean(means), std_over_seeds(means))
