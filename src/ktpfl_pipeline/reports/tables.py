"""The tables of a comparison, and those of methods by setting that the overview and the paper's report share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ktpfl_pipeline.analysis import contrasts
from ktpfl_pipeline.analysis.classes import majority
from ktpfl_pipeline.analysis.contrasts import clear_best
from ktpfl_pipeline.analysis.results import HEADLINE, ORDER, MethodResult, headline, local_only, ranked, subject
from ktpfl_pipeline.analysis.statistics import Difference, benign, mean_over_clients, paired
from ktpfl_pipeline.analysis.theorem import MIXTURES
from ktpfl_pipeline.reports import columns, notes, paper, words
from ktpfl_pipeline.reports.columns import MINUS_LOCAL, Column, accuracy_at, gained_at
from ktpfl_pipeline.reports.model import Section, Table, Text
from ktpfl_pipeline.reports.numbers import NONE, Entry, accuracy, interval, mean, percent
from ktpfl_pipeline.reports.words import point_title

TOLERANCE = 1e-6
"""Nats by which a loss may exceed another and still count as no worse."""


def comparison_table(results: Sequence[MethodResult], latex: str = "") -> Table:
    """Return one row per method, the best first, and one for the majority-class baseline where it is known."""
    lead, settings = headline(results), results[0].settings
    points = dict.fromkeys((lead, HEADLINE, "after_local"))
    cited = {} if paper.differences(settings) else paper.cited(settings, [result.method for result in results])
    shown = [
        columns.METHOD,
        *(accuracy_at(point, clear_best(results, point)) for point in points),
        gained_at(lead, results, MINUS_LOCAL.title, MINUS_LOCAL.meaning).but(key=MINUS_LOCAL.key),
        *(columns.TRAFFIC, columns.TIME),
        *([columns.PAPER.but(value=lambda result: cited.get(result.method))] if cited else []),
    ]
    meanings = notes.meanings(results)
    shown = [column.but(meaning=meanings.get(column.key, column.meaning)) for column in shown]
    made = Table.of("table", shown, ranked(results, lead), latex=latex, tinted=tinted(results))
    if not (guesses := majority(results)):
        return made
    local = local_only(results)
    theirs = dict(zip(local.seeds, local.final[HEADLINE].per_seed, strict=True)) if local else {}
    gained = interval(paired(guesses, theirs)) if lead == HEADLINE else None
    row = {"method": words.MAJORITY.title, HEADLINE: mean([*guesses.values()]), MINUS_LOCAL.key: gained}
    return replace(made, rows=[*made.rows, row])


def tinted(results: Sequence[MethodResult]) -> list[str]:
    """Return the methods whose rows tables highlight: the report's subject and local-only."""
    return [result.method for result in (subject(results), local_only(results)) if result]


def difference_table(results: Sequence[MethodResult]) -> Table:
    """Return what the report's subject gains over each baseline, in points, paired by seed; one row per baseline."""
    main, lead = subject(results), headline(results)
    others = contrasts.baselines(results)
    found, before = (contrasts.ahead(main, others, point) for point in (lead, "after_local"))
    rows = [(each, found[each.method], before[each.method]) for each in others if each is not main]

    def deviation(gain: Difference | None) -> Entry:
        return percent(gain.std) if gain and gain.std is not None else None

    shown = [
        Column("minus", f"{main.title} minus", value=lambda result, *_: result.title),
        Column("difference", point_title(lead), "points", value=lambda _, gain, __: interval(gain)),
        Column("std", "Std over seeds", "points", value=lambda _, gain, __: deviation(gain)),
        Column("after_local", point_title("after_local"), "points", value=lambda _, __, before: interval(before)),
        Column("seeds", "Seeds in common", value=lambda _, gain, __: str(gain.seeds if gain else 0)),
    ]
    return Table.of("differences", shown, rows)


def setting_columns(
    title: str,
    results: Mapping[str, MethodResult],
    cited: Mapping[str, str | None],
    failed: Collection[str] = (),
    point: str = HEADLINE,
) -> list[Column]:
    """Return the columns of one setting in a table of methods by setting; a row is a method's registry name.

    These are the final accuracy at an evaluation point and, next to the headline, the paper's number, if the setting is
    the paper's and so some are `cited`. The title is unique in the table; `failed` methods cannot be finished.
    """
    best = clear_best(list(results.values()), point)

    def ours(method: str) -> Entry:
        if method in failed:
            return "failed"
        result = results.get(method)
        return accuracy(result.final.get(point), result is best) if result else None

    shown = [accuracy_at(point).but(key=title, title=title, value=ours)]
    if point == HEADLINE and any(cited.values()):
        shown.append(columns.PAPER.but(key=f"{title}: paper", title=f"{title}: paper", value=cited.get))
    return shown


def methods_table(name: str, titles: Mapping[str, str], shown: Sequence[Column], latex: str) -> Table:
    """Return the methods with `titles`, by registry name, in the `setting_columns` of several settings."""
    return Table.of(name, [columns.METHOD.but(value=lambda method: titles[method]), *shown], titles, latex=latex)


def theorem_table(result: MethodResult) -> Table:
    """Return the check of Theorem 1 on a method's final models, one row per mixture; no rows where it was not made.

    Losses are negative log-likelihoods in nats. The last two columns count the clients, over all seeds, whose
    mixture is at least as good as both their own model and the average of all, within `TOLERANCE`. On the half of the
    samples that the best mixture was fitted to, the client's certificate is added to the tolerance.
    """
    runs = [run for run in result.runs if run.theorem is not None]

    def means(of: str, mixture: str) -> list[float]:
        return [mean_over_clients(getattr(run.theorem, of)[mixture], run.adversaries) for run in runs]

    def loss(half: str) -> Callable[[str], Entry]:
        return lambda mixture: mean(means(half, mixture), "{:.3f}".format)

    shown = [
        Column("mixture", "Mixture", value=str.capitalize),
        Column("fit_loss", "Loss, fitted half", "nats", value=loss("fit")),
        Column("test_loss", "Loss, other half", "nats", value=loss("test")),
        Column("test_accuracy", "Accuracy, other half", "%", value=lambda mixture: mean(means("accuracy", mixture))),
        Column("fit_no_worse", "No worse, fitted half", "clients", value=lambda each: _no_worse(each, result, "fit")),
        Column("test_no_worse", "No worse, other half", "clients", value=lambda each: _no_worse(each, result, "test")),
    ]
    checked = [each for each in MIXTURES if runs and all(run.theorem and each in run.theorem.fit for run in runs)]
    return Table.of("theorem", shown, checked)


def _no_worse(mixture: str, result: MethodResult, half: str) -> str | None:
    """Return the count of `theorem_table`, ``57 of 60``, without adversaries; None for ``own`` and ``average``."""
    held: list[float] = []  # 1 where it is at least as good
    for run, check in ((run, run.theorem) for run in result.runs if run.theorem):
        by = getattr(check, half)
        losses = zip(by[mixture], check.certificate, by["own"], by["average"], strict=True)
        held += benign(
            [float(loss <= min(bounds) + (half == "fit") * slack + TOLERANCE) for loss, slack, *bounds in losses],
            run.adversaries,
        )
    return None if mixture in ("own", "average") else f"{sum(held):.0f} of {len(held)}"


def runs(
    rows: Iterable[tuple[str, MethodResult]], first: Sequence[Column] = (columns.TITLE,), points: Sequence[str] = ORDER
) -> Section:
    """Return the section with one row per run: its seed and accuracies, and its run and key in MLflow.

    `rows` are results after the name of their setting. The `first` columns come before these; a row is a result, that
    name, and the place of a seed.
    """

    def at(point: str) -> Column:
        def value(result: MethodResult, _: str, place: int) -> Entry:
            return percent(result.final[point].per_seed[place]) if point in result.final else None

        return accuracy_at(point).but(value=value)

    def key(result: MethodResult, _: str, place: int) -> Entry:
        return (result.runs[place].key or NONE) if result.runs else None

    shown = [
        *first,
        Column("seed", "Seed", value=lambda result, _, place: str(result.seeds[place])),
        *map(at, points),
        Column("run_id", "MLflow run", value=lambda result, _, place: result.run_ids[place] or NONE),
        Column("key", "Settings key", value=key),
    ]
    table = Table.of(
        "runs", shown, [(result, name, place) for name, result in rows for place in range(len(result.seeds))]
    )
    return Section("Runs", [table.filled(), Text(words.RUNS)], folded=True)
