"""The numbers of a report as CSV and Parquet."""

import io
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.classes import recalls
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult, local_only
from ktpfl_pipeline.analysis.statistics import Difference, benign, mean_over_clients, worst_decile

TEXTS = {
    *("method", "minus", "point", "run_id", "key", "run_ids", "minus_run_ids", "owner", "architecture", "mixture"),
    *("name", "true", "predicted", "values"),
}
"""Columns of CSV files that hold text, also where it looks like a number."""


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a row, numbers unrounded; what is not known is empty."""
    import pandas as pd

    return pd.DataFrame(rows, dtype=object).to_csv(index=False)


def to_parquet(csv: str) -> bytes:
    """Return a table that `to_csv` wrote as Parquet, with the types of its columns."""
    import pandas as pd

    texts = {name: "string" for name in pd.read_csv(io.StringIO(csv), nrows=0).columns if name in TEXTS}
    frame = pd.read_csv(io.StringIO(csv), dtype=texts, keep_default_na=False, na_values=[""])
    return bytes(frame.to_parquet(index=False))


def data_files(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the report's numbers as CSV by file name, unrounded, every row with the run that it came from.

    ``docs/reading_results.md`` says what each file has. Accuracies and differences are in 0..1, losses in nats. A file
    without rows is left out.
    """
    kinds = ("runs.csv", "rounds.csv", "clients.csv", "classes.csv", "confusion.csv", "theorem.csv")
    files: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for run, points in ((run, list(result.curve)) for result in results for run in result.runs):
        ids = {"method": run.method, "seed": run.seed, "run_id": run.run_id, "key": run.key}
        finals, beside = {point: run.final(point) for point in points}, run.measures
        means = {name: fmean(there) for name, each in beside.items() if (there := benign(each, run.adversaries))}
        if run.majority:
            means["majority_class"] = mean_over_clients(run.majority, run.adversaries)
        known = zip(run.classes, recalls([run]), run.confusion, strict=True) if run.confusion else ()
        for label, (name, recall, counts) in enumerate(known):
            of_class = {"class": label, "name": name, "test_samples": sum(counts), "accuracy": recall}
            files["classes.csv"].append({**ids, **of_class})
            said = {other: count for other, count in zip(run.classes, counts, strict=True) if count}
            files["confusion.csv"] += [
                {**ids, "true": name, "predicted": each, "samples": n} for each, n in said.items()
            ]
        for point, values in finals.items():
            clients = benign(values, run.adversaries)
            deviation, worst = pstdev(clients), worst_decile(clients)
            accuracy = {"accuracy": fmean(clients), "client_std": deviation, "worst_decile": worst}
            cost = {**_bytes(run.traffic), "seconds": run.seconds("round"), **run.work}
            cost |= means if point == HEADLINE else {}
            files["runs.csv"].append({**ids, "point": point, **accuracy, **cost})
        for t in run.history:
            traffic = {category: sum(t.traffic.get(category, [])) for category in run.traffic}
            row = {
                "round": t.round,
                **run.means(t),
                **_bytes(traffic),
                **{name: len(getattr(t, name)) for name in ("diverged", "absent", "late")},
            }
            files["rounds.csv"].append({**ids, **row})
        check: Any = run.theorem
        for client, architecture in enumerate(run.architectures):
            judged: dict[str, Sequence[Any]] = {**finals, **beside}
            own = {name: values[client] for name, values in judged.items()}
            named = {"owner": run.names[client]} if run.names else {}
            own |= {"majority_class": run.majority[client]} if run.majority else {}
            files["clients.csv"].append({**ids, "client": client, **named, "architecture": architecture, **own})
            for mixture in check.fit if check else ():
                loss = {"fit_loss": check.fit[mixture][client], "test_loss": check.test[mixture][client]}
                more = {"test_accuracy": check.accuracy[mixture][client], "certificate": check.certificate[client]}
                files["theorem.csv"].append({**ids, "client": client, "mixture": mixture, **loss, **more})
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


def _minus(one: MethodResult, other: MethodResult, found: Difference, **place: str) -> dict[str, Any]:
    """Return the row of a difference, with the runs of both."""
    runs = {"run_ids": " ".join(one.run_ids), "minus_run_ids": " ".join(other.run_ids)}
    return {"method": one.method, "minus": other.method, **place, **vars(found), **runs}


def _bytes(traffic: Mapping[str, int]) -> dict[str, int]:
    return {f"{category}_bytes": count for category, count in traffic.items()}
