"""The unrounded numbers of finished runs as pandas DataFrames, which are the CSV files of a report.

``docs/reading_results.md`` describes the columns. Every row names its run. Accuracies and differences are fractions of
1, and losses are in nats.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from ktpfl_pipeline.analysis.choice import Choices
from ktpfl_pipeline.analysis.decisions import Decision
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, recalls
from ktpfl_pipeline.analysis.statistics import Difference, benign, mean_over_clients, worst_decile
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER

Row = dict[str, Any]
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of a text that a spreadsheet runs as a formula."""


def frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a DataFrame with one row per mapping. Values are not converted; unknown ones are NaN."""
    import pandas as pd

    return pd.DataFrame(rows, dtype=object)


def to_csv(table: Any) -> str:
    """Return a DataFrame as CSV with unrounded numbers. Unknown values are empty.

    A text that a spreadsheet would run as a formula, such as ``=1+1``, begins with an apostrophe.
    """
    safe = table.apply(lambda column: column if column.dtype.kind in "ifb" else column.map(_as_text))
    return str(safe.to_csv(index=False))


def _as_text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


def of_runs(results: Sequence[MethodResult], left_out: Mapping[tuple[int, str | int], str]) -> dict[str, Any]:
    """Return the DataFrames of all runs by name; one without rows is left out.

    `left_out` are the reasons of clients that do not count, by seed and name.
    """
    tables: dict[str, list[Row]] = {}
    for run, points in ((run, result.curve) for result in results for run in result.runs):
        own = {"method": run.method, "seed": run.seed, "run_id": run.run_id, "key": run.key}
        made = {
            "runs": _finals(run, points),
            "rounds": _rounds(run),
            "clients": _clients(run, points, left_out),
            "classes": _classes(run),
            "confusion": _confusion(run),
            "theorem": _theorem(run),
        }
        for name, rows in made.items():
            tables.setdefault(name, []).extend({**own, **row} for row in rows)
    return {name: frame(rows) for name, rows in tables.items() if rows}


def _finals(run: FinishedRun, points: Collection[str]) -> Iterator[Row]:
    """Yield a run's final accuracy and cost for each evaluation point. The row after transfer also has the measures."""
    cost = {**_bytes(run.traffic), "seconds": run.seconds("round"), **run.work}
    measures = {name: fmean(own) for name, each in run.measures.items() if (own := benign(each, run.adversaries))}
    if run.majority:
        measures["majority_class"] = mean_over_clients(run.majority, run.adversaries)
    for point in points:
        clients = benign(run.final(point), run.adversaries)
        accuracy = {"accuracy": fmean(clients), "client_std": pstdev(clients), "worst_decile": worst_decile(clients)}
        yield {"point": point, **accuracy, **cost, **(measures if point == AFTER_TRANSFER else {})}


def _rounds(run: FinishedRun) -> Iterator[Row]:
    for record in run.history:
        traffic = {category: sum(record.traffic.get(category, [])) for category in run.traffic}
        own = {f"metrics/{name}": value for name, value in record.metrics.items()}
        yield {"round": record.round, **run.means(record), **_bytes(traffic), **record.counts, **own}


def _clients(run: FinishedRun, points: Collection[str], left_out: Mapping[tuple[int, str | int], str]) -> Iterator[Row]:
    values = {**{point: run.final(point) for point in points}, **run.measures}
    if run.majority:
        values["majority_class"] = run.majority
    for place, (client, architecture) in enumerate(zip(run.client_ids, run.architectures, strict=True)):
        named: Row = {"owner": run.names[place]} if run.names else {}
        named |= {"malicious": int(place in run.adversaries)} if run.adversaries else {}
        named |= {"left_out": left_out.get((run.seed, run.client_names[place]), "")} if left_out else {}
        named |= {f"{split}_samples": counts[place] for split, counts in run.samples.items()}
        own = {name: each[place] for name, each in values.items()}
        yield {"client": client, **named, "architecture": architecture, **own}


def _classes(run: FinishedRun) -> Iterator[Row]:
    rows = zip(run.classes, run.confusion, recalls([run]), strict=True) if run.confusion else ()
    for label, (name, counts, recall) in enumerate(rows):
        yield {"class": label, "name": name, "test_samples": sum(counts), "accuracy": recall}


def _confusion(run: FinishedRun) -> Iterator[Row]:
    for true, counts in zip(run.classes, run.confusion, strict=True) if run.confusion else ():
        for predicted, count in zip(run.classes, counts, strict=True):
            if count:
                yield {"true": true, "predicted": predicted, "samples": count}


def _theorem(run: FinishedRun) -> Iterator[Row]:
    if (check := run.theorem) is not None:
        for place, (client, certificate) in enumerate(zip(run.client_ids, check.certificate, strict=True)):
            for mixture in check.fit:
                loss = {"fit_loss": check.fit[mixture][place], "test_loss": check.test[mixture][place]}
                more = {"test_accuracy": check.accuracy[mixture][place], "certificate": certificate}
                yield {"client": client, "mixture": mixture, **loss, **more}


def of_difference(one: MethodResult, other: MethodResult, found: Difference, **place: str) -> Row:
    runs = {"run_ids": " ".join(one.run_ids), "minus_run_ids": " ".join(other.run_ids)}
    return {"method": one.method, "minus": other.method, **place, **vars(found), **runs}


def of_decision(method: MethodResult, local: MethodResult, found: Decision) -> Row:
    teachers = " ".join(f"{name}={weight:.4f}" for name, weight in found.teachers.items())
    values = {name: value for name, value in vars(found).items() if name not in ("difference", "teachers")}
    stated = of_difference(method, local, found.difference)
    return {**values, "decision": found.decision, **stated, "teachers": teachers}


def of_choices(method: MethodResult, found: Choices) -> Row:
    """Return the row of what the clients' choices between a method's model and their own lead to."""
    return {
        "method": method.method,
        **found._asdict(),
        "keeping": fmean(found.keeping),
        "run_ids": " ".join(method.run_ids),
    }


def _bytes(traffic: Mapping[str, int]) -> dict[str, int]:
    return {f"{category}_bytes": count for category, count in traffic.items()}
