"""The numbers of a report as CSV and Parquet."""

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.classes import recalls
from ktpfl_pipeline.analysis.results import HEADLINE, FinishedRun, MethodResult, local_only
from ktpfl_pipeline.analysis.statistics import Difference, benign, mean_over_clients, worst_decile

Row = dict[str, Any]
TEXTS = {
    *("method", "minus", "point", "run_id", "key", "run_ids", "minus_run_ids", "owner", "architecture", "mixture"),
    *("name", "true", "predicted", "values"),
}
"""The columns of CSV files that contain text, even if the text looks like a number."""


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with one line per row and unrounded numbers. Unknown values are empty."""
    import pandas as pd

    return pd.DataFrame(rows, dtype=object).to_csv(index=False)


def to_parquet(csv: str) -> bytes:
    """Return a table that `to_csv` wrote as Parquet, with the types of its columns."""
    import pandas as pd

    texts = {name: "string" for name in pd.read_csv(io.StringIO(csv), nrows=0).columns if name in TEXTS}
    frame = pd.read_csv(io.StringIO(csv), dtype=texts, keep_default_na=False, na_values=[""])
    return bytes(frame.to_parquet(index=False))


def data_files(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the report's unrounded numbers as CSV by file name. Every row names its run.

    ``docs/reading_results.md`` describes the files. Accuracies and differences are fractions of 1, and losses are in
    nats. A file without rows is left out.
    """
    made: dict[str, Callable[[FinishedRun, Collection[str]], Iterator[Row]]] = {
        "runs.csv": _finals,
        "rounds.csv": _rounds,
        "clients.csv": _clients,
        "classes.csv": _classes,
        "confusion.csv": _confusion,
        "theorem.csv": _theorem,
    }
    files = {
        name: [
            {"method": run.method, "seed": run.seed, "run_id": run.run_id, "key": run.key, **row}
            for result in results
            for run in result.runs
            for row in rows(run, result.curve)
        ]
        for name, rows in made.items()
    }
    files["differences.csv"] = [
        _minus(one, other, found, point=point)
        for point in dict.fromkeys(point for result in results for point in result.final)
        for one, other, found in contrasts.stated(results, point)
    ]
    local, by_method = local_only(results), {result.method: result for result in results}
    by_architecture = contrasts.against_by_architecture(local, results)
    files["architectures.csv"] = [
        _minus(by_method[method], local, found, architecture=architecture, point=HEADLINE)
        for architecture, differences in by_architecture.items()
        for method, found in differences.items()
        if local and found and len(by_architecture) > 1
    ]
    return {name: to_csv(rows) for name, rows in files.items() if rows}


def _finals(run: FinishedRun, points: Collection[str]) -> Iterator[Row]:
    """Yield a run's final accuracy and cost for each evaluation point. The headline's row also has the measures."""
    cost = {**_bytes(run.traffic), "seconds": run.seconds("round"), **run.work}
    measures = {name: fmean(own) for name, each in run.measures.items() if (own := benign(each, run.adversaries))}
    if run.majority:
        measures["majority_class"] = mean_over_clients(run.majority, run.adversaries)
    for point in points:
        clients = benign(run.final(point), run.adversaries)
        accuracy = {"accuracy": fmean(clients), "client_std": pstdev(clients), "worst_decile": worst_decile(clients)}
        yield {"point": point, **accuracy, **cost, **(measures if point == HEADLINE else {})}


def _rounds(run: FinishedRun, _: Collection[str]) -> Iterator[Row]:
    for record in run.history:
        traffic = {category: sum(record.traffic.get(category, [])) for category in run.traffic}
        own = {f"metrics/{name}": value for name, value in record.metrics.items()}
        yield {"round": record.round, **run.means(record), **_bytes(traffic), **record.counts, **own}


def _clients(run: FinishedRun, points: Collection[str]) -> Iterator[Row]:
    values = {**{point: run.final(point) for point in points}, **run.measures}
    if run.majority:
        values["majority_class"] = run.majority
    for place, (client, architecture) in enumerate(zip(run.client_ids, run.architectures, strict=True)):
        named: Row = {"owner": run.names[place]} if run.names else {}
        named |= {"malicious": int(place in run.adversaries)} if run.adversaries else {}
        own = {name: each[place] for name, each in values.items()}
        yield {"client": client, **named, "architecture": architecture, **own}


def _classes(run: FinishedRun, _: Collection[str]) -> Iterator[Row]:
    rows = zip(run.classes, run.confusion, recalls([run]), strict=True) if run.confusion else ()
    for label, (name, counts, recall) in enumerate(rows):
        yield {"class": label, "name": name, "test_samples": sum(counts), "accuracy": recall}


def _confusion(run: FinishedRun, _: Collection[str]) -> Iterator[Row]:
    for true, counts in zip(run.classes, run.confusion, strict=True) if run.confusion else ():
        for predicted, count in zip(run.classes, counts, strict=True):
            if count:
                yield {"true": true, "predicted": predicted, "samples": count}


def _theorem(run: FinishedRun, _: Collection[str]) -> Iterator[Row]:
    if (check := run.theorem) is not None:
        for place, (client, certificate) in enumerate(zip(run.client_ids, check.certificate, strict=True)):
            for mixture in check.fit:
                loss = {"fit_loss": check.fit[mixture][place], "test_loss": check.test[mixture][place]}
                more = {"test_accuracy": check.accuracy[mixture][place], "certificate": certificate}
                yield {"client": client, "mixture": mixture, **loss, **more}


def _minus(one: MethodResult, other: MethodResult, found: Difference, **place: str) -> Row:
    """Return the row of a difference between two methods, with the runs of both methods."""
    runs = {"run_ids": " ".join(one.run_ids), "minus_run_ids": " ".join(other.run_ids)}
    return {"method": one.method, "minus": other.method, **place, **vars(found), **runs}


def _bytes(traffic: Mapping[str, int]) -> dict[str, int]:
    return {f"{category}_bytes": count for category, count in traffic.items()}
