"""The tables of a comparison, and its numbers as CSV."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.contrasts import clear_best
from ktpfl_pipeline.analysis.results import HEADLINE, ORDER, FinishedRun, MethodResult
from ktpfl_pipeline.analysis.roles import headline, local_only, ranked, subject
from ktpfl_pipeline.analysis.statistics import benign, mean_over_clients, worst_decile
from ktpfl_pipeline.analysis.theorem import MIXTURES
from ktpfl_pipeline.core.method import FineTuned, Method
from ktpfl_pipeline.reports import classes, numbers, paper, words
from ktpfl_pipeline.reports.model import Section, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, Number, duration, interval, mean, megabytes, percent
from ktpfl_pipeline.reports.words import plain, point_title

SIGNS: Mapping[str, tuple[Callable[[type[Method[Any]]], bool], str]] = {
    "†": (lambda kind: kind.fits_validation, "fits on the clients' validation samples, which others leave alone"),
    "‡": (
        lambda kind: issubclass(kind, FineTuned),
        "fine-tunes clients' models before they are evaluated as they are, which others do not: compare after equal "
        "epochs",
    ),
}
"""Signs of methods that others do not equal in something: of which, and what."""
TOLERANCE = 1e-6
"""Nats by which a loss may exceed another and still count as no worse."""


def comparison_table(results: Sequence[MethodResult], settings: dict[str, Any], latex: str = "") -> Table:
    """Return one row a method, the best first: accuracy at both points, gain over local-only, traffic, time.

    The paper's numbers stand beside ours where the settings let them; `latex` is the caption there.
    """
    lead = headline(results)
    points = {point: clear_best(results, point) for point in dict.fromkeys((lead, HEADLINE, "after_local"))}
    gained, rows = contrasts.against(local_only(results), results, lead), list[dict[str, Entry]]()
    cited = not paper.differences(settings) and any(paper.number(settings, result.method) for result in results)
    for result in ranked(results, lead):
        rows.append(
            {
                "Method": marked(result),
                **{
                    f"{point_title(point)} (%)": numbers.accuracy(result.final.get(point), best is result)
                    for point, best in points.items()
                },
                "Minus local-only (points)": interval(gained.get(result.method)),
                "Traffic (MB)": megabytes(result.sent),
                "Time": Number(result.time, duration),
                **({"Paper (%)": paper.written(settings, result.method)} if cited else {}),
            }
        )
    if baseline := classes.majority_row(results, f"{point_title(HEADLINE)} (%)", "Minus local-only (points)"):
        rows.append(baseline if lead == HEADLINE else {**baseline, "Minus local-only (points)": None})
    return Table.of("table", rows, latex, tinted(results))


def marked(result: MethodResult) -> str:
    """Return a method's title with its `SIGNS`."""
    preset = methods.known(result.method)
    return " ".join([result.title, *(sign for sign, (has, _) in SIGNS.items() if preset and has(preset.kind))])


def signs(results: Iterable[MethodResult]) -> dict[str, str]:
    """Return what the `SIGNS` of these methods mean, by sign, and whose they are."""
    names = {marked(result): result.title for result in results}
    whose = {sign: [title for name, title in names.items() if sign in name] for sign in SIGNS}
    return {sign: f"{SIGNS[sign][1]}: {', '.join(titles)}." for sign, titles in whose.items() if titles}


def tinted(results: Sequence[MethodResult]) -> list[str]:
    """Return the names of the rows that tables set off: of the report's subject and of local-only."""
    return [marked(result) for result in (subject(results), local_only(results)) if result]


def difference_table(results: Sequence[MethodResult]) -> Table:
    """Return what the report's subject gains over each rival, in points, paired by seed; one row a rival."""
    main, rivals = subject(results), contrasts.rivals(results)
    lead = headline(results)
    points = [contrasts.ahead(main, rivals, point) for point in (lead, "after_local")]
    rows: list[dict[str, Entry]] = []
    for result in (result for result in rivals if result is not main):
        found, before = (by_method[result.method] for by_method in points)
        rows.append(
            {
                f"{main.title} minus": result.title,
                f"{point_title(lead)} (points)": interval(found),
                "Std over seeds (points)": None if found is None or found.std is None else percent(found.std),
                "After local training (points)": interval(before),
                "Seeds in common": str(found.seeds if found else 0),
            }
        )
    return Table.of("differences", rows)


def theorem_table(result: MethodResult) -> Table:
    """Return the check of Theorem 1 on a method's final models, one row a mixture; without rows where it was not made.

    Losses are negative log-likelihoods in nats. The last two columns count, over all seeds, the clients for whom the
    mixture is no worse than both the client's own model and the average of all, within `TOLERANCE`; on the half of the
    samples that the best mixture was fitted to, the certificate of that client comes on top.
    """
    runs = [run for run in result.runs if run.theorem is not None]

    def means(of: str) -> list[float]:
        return [mean_over_clients(getattr(run.theorem, of)[mixture], run.adversaries) for run in runs]

    rows: list[dict[str, Entry]] = []
    for mixture in MIXTURES:
        if runs and all(run.theorem and mixture in run.theorem.fit for run in runs):
            rows.append(
                {
                    "Mixture": mixture.capitalize(),
                    "Loss, fitted half (nats)": mean(means("fit"), "{:.3f}".format),
                    "Loss, other half (nats)": mean(means("test"), "{:.3f}".format),
                    "Accuracy, other half (%)": mean(means("accuracy")),
                    "No worse, fitted half (clients)": _no_worse(mixture, runs, "fit"),
                    "No worse, other half (clients)": _no_worse(mixture, runs, "test"),
                }
            )
    return Table.of("theorem", rows)


def _no_worse(mixture: str, runs: Sequence[FinishedRun], half: str) -> str | None:
    """Return for how many clients a mixture's loss is at most that of ``own`` and ``average``: ``57 of 60``.

    For these two themselves there is nothing to count. Adversaries do not count.
    """
    held: list[float] = []  # 1 where it is no worse
    for run in runs:
        check: Any = run.theorem
        by = getattr(check, half)
        losses = zip(by[mixture], check.certificate, by["own"], by["average"], strict=True)
        held += benign(
            [float(loss <= min(bounds) + (half == "fit") * slack + TOLERANCE) for loss, slack, *bounds in losses],
            run.adversaries,
        )
    return None if mixture in ("own", "average") else f"{sum(held):.0f} of {len(held)}"


def communication_table(results: Sequence[MethodResult]) -> Table:
    """Return one row a method: MB by category and direction over the whole run, and kB per client and round."""
    rows: list[dict[str, Entry]] = []
    for result in results:
        names = {category: plain(category).replace("public", "public data").capitalize() for category in result.traffic}
        by_category = {f"{names[category]} (MB)": megabytes(count) for category, count in result.traffic.items()}
        each = Number(result.sent / result.turns / 1e3, numbers.three_digits)
        sums = {"Total (MB)": megabytes(result.sent), "Per client and round (kB)": each}
        rows.append({"Method": result.title, **by_category, **sums})
    return Table.of("communication", rows)


def phase_table(results: Sequence[MethodResult]) -> Table:
    """Return one row a method: wall time by phase of a round, summed over the rounds; a dash where it has none."""
    phases = {phase: plain(phase).capitalize() for result in results for phase in result.seconds if phase != "round"}
    rows: list[dict[str, Entry]] = []
    for result in results:
        seconds = {name: result.seconds.get(phase) for phase, name in phases.items()} | {"Whole rounds": result.time}
        spent = {name: None if time is None else Number(time, duration) for name, time in seconds.items()}
        rows.append({"Method": result.title, **spent})
    return Table.of("phases", rows)


def runs(rows: Sequence[tuple[Mapping[str, Entry], MethodResult]], points: Sequence[str] = ORDER) -> Section:
    """Return the section with one row a run: of what method, its seed, its accuracies, and what finds it in MLflow.

    Args:
        rows: what stands first in a method's rows, and the method's result.
        points: the evaluation points that are shown, where they are known.
    """

    def row(named: Mapping[str, Entry], result: MethodResult, place: int) -> dict[str, Entry]:
        known = {point: result.final.get(point) for point in points}
        return {
            **{**named, "Seed": str(result.seeds[place])},
            **{f"{point_title(name)} (%)": percent(by.per_seed[place]) if by else None for name, by in known.items()},
            "MLflow run": result.run_ids[place] or NONE,
            "Settings key": result.runs[place].key or NONE if result.runs else None,
        }

    table = Table.of("runs", [row(*each, place) for each in rows for place in range(len(each[1].seeds))]).filled()
    return Section("Runs", [table, Text(words.RUNS)], folded=True)


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a row, numbers unrounded; what is not known is empty."""
    import pandas as pd

    return pd.DataFrame(rows, dtype=object).to_csv(index=False)


def data_files(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the report's numbers as CSV by file name, unrounded, every row with the run that it came from.

    ``runs.csv`` has the final values, bytes, work and seconds of every seed, ``rounds.csv`` accuracy and bytes of every
    round, ``clients.csv`` the final accuracy of every client and what else is measured of its model,
    ``classes.csv`` the accuracy on each class and ``confusion.csv`` the confusion matrix with the models after the last
    round, ``theorem.csv`` the check of Theorem 1 by client and mixture, and ``differences.csv`` the paired differences
    of the report's subject to each rival and of each method to local-only, with the runs of both;
    ``architectures.csv`` has the latter by architecture, where there are several. Accuracies and differences are in
    0..1, losses in nats. A file without rows is left out.
    """
    kinds = ("runs.csv", "rounds.csv", "clients.csv", "classes.csv", "confusion.csv", "theorem.csv")
    files: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for run, points in ((run, list(result.curve)) for result in results for run in result.runs):
        ids = {"method": run.method, "seed": run.seed, "run_id": run.run_id, "key": run.key}
        finals, beside = {point: run.final(point) for point in points}, run.measures
        means = {name: fmean(there) for name, each in beside.items() if (there := benign(each, run.adversaries))}
        if run.majority:
            means["majority_class"] = mean_over_clients(run.majority, run.adversaries)
        files["classes.csv"] += classes.rows_by_class(run, ids)
        files["confusion.csv"] += classes.rows_of_confusion(run, ids)
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
        {
            **{"method": one.method, "minus": other.method, "point": point, **vars(found)},
            **{"run_ids": " ".join(one.run_ids), "minus_run_ids": " ".join(other.run_ids)},
        }
        for point in dict.fromkeys(point for result in results for point in result.final)
        for one, other, found in contrasts.stated(results, point)
    ]
    names, local = contrasts.architectures(results), local_only(results)
    of_method = {result.method: " ".join(result.run_ids) for result in results}
    by_architecture = contrasts.against_by_architecture(local, results) if local and len(names) > 1 else {}
    files["architectures.csv"] = [
        {
            **{"method": method, "minus": "local", "architecture": architecture, "point": HEADLINE, **vars(found)},
            **{"run_ids": of_method[method], "minus_run_ids": of_method["local"]},
        }
        for architecture, differences in by_architecture.items()
        for method, found in differences.items()
        if found
    ]
    return {name: to_csv(rows) for name, rows in files.items() if rows}


def _bytes(traffic: Mapping[str, int]) -> dict[str, int]:
    return {f"{category}_bytes": count for category, count in traffic.items()}
