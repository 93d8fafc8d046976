"""The report on a sweep: how each method's accuracy depends on one setting, and which value is chosen.

Only validation accuracy chooses a value. The test accuracy at the chosen value is then reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ktpfl_pipeline.analysis import study
from ktpfl_pipeline.analysis.comparison import Comparison, paired_difference
from ktpfl_pipeline.analysis.frames import frame, to_csv
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.skew import label_skew
from ktpfl_pipeline.analysis.statistics import Difference, holm
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, VALIDATION
from ktpfl_pipeline.reports import figures, notes, tables, words
from ktpfl_pipeline.reports.model import Block, Column, Picture, Section, Settings, Table
from ktpfl_pipeline.reports.numbers import Number, accuracy, hundredths, interval, mean, megabytes, signed, weight
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import MINUS_LOCAL, VARIANT, accuracy_at, runs
from ktpfl_pipeline.reports.words import as_text, metric_title

KNOWLEDGE = "knowledge"
"""The section whose values are compared by the bytes of predictions."""
TITLES = {
    "training.epochs": "Local epochs E",
    "distillation.epochs": "Distillation steps R",
    "methods.kt_pfl.rho": "ρ",
    "public.batch": "Public samples per round B",
    "public.source": "Public set",
    "adversaries.share": "Share of malicious clients",
    "partition": "Partition",
    "partition.alpha": "Concentration α",
    KNOWLEDGE: "Compression",
}
"""The names of settings in the paper's tables. Any other setting is named by its path."""
ANY = "any"
"""The shown value of a method that does not depend on the setting."""


@dataclass(frozen=True)
class Row:
    """One method at one value."""

    value: str  # as written in conf/; `ANY` for a method that the setting does not affect
    result: MethodResult
    minus_local: Difference | None  # in the headline, to local-only at the same value; None for local-only, without it
    chosen: bool  # whether this is the method's value with the highest validation accuracy


def build(name: str, parameter: str, variants: Sequence[Comparison]) -> Report:
    """Return the report on a sweep of the setting with the path `parameter`; all variants have the same methods."""
    title, rows = title_of(parameter), table_rows(variants)
    outcome, results = summary(variants, parameter, rows), [row.result for row in rows]
    main, settings, one, led = table(rows, title, outcome), variants[0].settings, results[0], Comparison(results)

    def fixed(path: str) -> bool:
        return not f"{path}.".startswith(f"{parameter}.")

    own = {
        result.title: {k: as_text(v) for k, v in result.hyperparameters.items() if fixed(f"methods.{method}.{k}")}
        for method, result in variants[0].methods.items()
    }
    common = {path: value for path, value in words.as_texts(settings).items() if fixed(path)}
    facts = {
        "private.source": f"private {settings['private']['source']}",
        "clients": plural(one.clients, "client"),
        "partition.scheme": words.plain(settings["partition"]["scheme"]),
        "rounds": plural(one.rounds, "round"),
        "seeds": words.listed_seeds(one.seeds),
    }
    if len({variant.settings.get("adversaries", {}).get("share", 0.0) for variant in variants}) > 1:
        facts["adversaries.kind"] = f"malicious clients upload {settings['adversaries']['kind']} predictions"
    uploads = "upload false predictions; no mean counts their own accuracy."
    malicious = any(run.adversaries for result in results for run in result.runs)
    none = study.no_choice(variants, variants[0].methods)
    told = {
        "Headline": notes.other_headline(led),
        "Malicious clients": uploads * malicious,
        "No choice of a value": f"{none}." * bool(none and by_value(rows)),
    }
    left_out = " ".join(
        f"{title} = {as_text(variant.value)}: {text}" for variant in variants if (text := notes.left_out(variant))
    )
    lean = parameter.partition(".")[0] == KNOWLEDGE
    figure = figures.accuracy_by_bytes(variants) if lean else figures.accuracy_by_value(variants, title)
    drawn = Picture("accuracy", figure, _caption(variants, title, lean))
    return Report(
        name=name,
        title=name,
        kind="Sweep",
        summary=outcome,
        facts=[
            f"{title}: {', '.join(as_text(variant.value) for variant in variants)}",
            *(fact for path, fact in facts.items() if fixed(path)),
        ],
        sections=[
            Section("", main.explained(**told)),
            Section("Difference to local-only by value", _differences(rows, led.headline)),
            Section("Whom clients learn from", _matrices(variants, title) if by_value(rows) else []),
            Section("Accuracy against bytes" if lean else "Accuracy by value", [drawn]),
            Section("Settings that all variants have in common", [Settings({"": common})], folded=True),
            Section("Hyperparameters", [Settings({method: each for method, each in own.items() if each})], folded=True),
            runs(
                [(row.value, row.result) for row in rows],
                [tables.TITLE, VARIANT.but(title=title)],
                [AFTER_TRANSFER],
            ),
        ],
        brief=[main],
        warnings={"Left out": left_out, **notes.warned(results)},
        data={"table.csv": to_csv(frame([_csv(parameter, row, led.headline) for row in rows]))},
    )


def by_value(rows: Sequence[Row]) -> dict[str, list[tuple[str, Difference]]]:
    """Return titles of methods with their differences to local-only at each value; empty with a choice or one value."""
    if any(row.chosen for row in rows) or len({row.value for row in rows}) == 1:
        return {}
    found: dict[str, list[tuple[str, Difference]]] = {}
    for row in rows:
        if row.minus_local and row.value != ANY:
            found.setdefault(row.value, []).append((row.result.title, row.minus_local))
    return found


def _differences(rows: Sequence[Row], headline: str) -> list[Block]:
    """Return a figure of the differences to local-only, if the setting describes the federation."""
    if not (found := by_value(rows)):
        return []
    caption = f"Difference to local-only training{words.in_measure(headline)} at each value, {words.FILLED}."
    return [Picture("differences", figures.differences_by_value(found, headline), f"{caption} {words.FEW}.")]


def _matrices(variants: Sequence[Comparison], title: str) -> list[Block]:
    """Return figures of the coefficient matrix of the first method that has one, at each value."""
    drawn: list[Block] = []
    for place, variant in enumerate(variants):
        found = [each for each in variant if each.runs[0].coefficients is not None and each.clients > 1]
        for result in found[:1]:
            caption = (
                f"{title} {as_text(variant.value)}: the weight of each teacher (column) for each student (row) at the "
                f"end of {result.title}, seed {result.seeds[0]}, and how similar the clients' label distributions are. "
                f"{words.order_of(result.clients)}"
            )
            drawn.append(Picture(f"coefficients_{place}", figures.coefficient_heatmaps(result), caption))
    return drawn


def outcomes(rows: Sequence[Row], title: str) -> str:
    """State for each value which methods differ significantly from local-only; empty if a value is chosen."""
    said, pays = list[str](), list[str]()
    for value, own in by_value(rows).items():
        above, below, same = (
            [f"{name} ({signed(each.mean)})" for name, each in own if each.sign == sign] for sign in (1, -1, 0)
        )
        pays += [value] * bool(above)
        kinds = {"significantly above local-only training": above, "significantly below": below}
        kinds["not shown to differ from it" if above or below else "no method is shown to differ"] = same
        listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
        said.append(f"{title} {value}: {listed}.")
    if said:
        where = f"at {len(pays)} of {len(said)} values of {title}" if pays else f"at no value of {title}"
        shown = f": {', '.join(pays)}" if 0 < len(pays) < len(said) else ""
        said.insert(0, f"Exchanging knowledge is shown to help {where}{shown}.")
        said.append("Differences are in percentage points.")
    return " ".join(said)


def title_of(parameter: str) -> str:
    """Return the title of a setting: that of the paper's tables, a hyperparameter's name, or its path."""
    own = parameter.rpartition(".")[2] if parameter.startswith("methods.") else parameter
    return TITLES.get(parameter, own)


def table_rows(variants: Sequence[Comparison]) -> list[Row]:
    """Return the rows of the table, by method and value. A method with the same runs at all values has one row."""
    rows, headline = list[Row](), Comparison([each for variant in variants for each in variant]).headline
    for method in variants[0].methods:
        best, own = study.chosen(variants, method), study.touched(variants, method)
        for variant in variants if own else variants[:1]:
            result, local = variant.methods[method], variant.methods.get("local")
            gained = None if local is None or local is result else paired_difference(result, local, headline)
            rows.append(Row(as_text(variant.value) if own else ANY, result, gained, variant is best))
    gains = holm({place: row.minus_local for place, row in enumerate(rows)})
    return [replace(row, minus_local=gains[place]) for place, row in enumerate(rows)]


def table(rows: Sequence[Row], title: str, latex: str = "") -> Table:
    """Return one row for each method and value; `title` is the name of the setting."""
    skewed = len({str(_skew(row)) for row in rows}) > 1  # the label skew depends on the setting
    batches = {(row.result.settings.get("public") or {}).get("batch") for row in rows}
    sizes = {(row.result.method, row.result.predictions) for row in rows}
    sized = len(batches) == 1 and len(sizes) > len({row.result.method for row in rows})  # the sizes vary
    chosen = any(row.chosen for row in rows)
    some = any(row.value == ANY for row in rows)
    averaged = words.averaged(len(rows[0].result.seeds), [row.result for row in rows])
    headline = Comparison([row.result for row in rows]).headline
    meanings = {metric: measure.meaning for metric, measure in words.MEASURES.items()}
    meanings[AFTER_TRANSFER] = f"{words.OWN_MODEL} {averaged}"
    shown = [
        tables.METHOD.but(value=lambda row: row.result.title),
        Column(
            "value", title, "", f"{ANY}: the setting makes no difference to the method." * some, lambda row: row.value
        ),
        *(
            accuracy_at(metric, meaning=meanings[metric]).but(
                value=lambda row, at=metric: accuracy(row.result.final[at])
            )
            for metric in dict.fromkeys((headline, AFTER_TRANSFER))
        ),
        tables.VALIDATION.but(
            meaning="the same accuracy on samples that are used neither for training nor for testing.",
            value=lambda row: accuracy(row.result.final.get(VALIDATION)),
        ),
        MINUS_LOCAL.but(
            title=f"{MINUS_LOCAL.title}{words.in_measure(headline)}",
            meaning=f"at the same value, {words.CORRECTED} {words.FEW}.",
            value=lambda row: interval(row.minus_local),
        ),
        tables.CHOSEN.but(
            meaning="the value with the highest validation accuracy. Test accuracy is not used to choose, because its "
            "maximum is too optimistic.",
            value=lambda row: ("chosen" if row.chosen else "") if chosen else None,
        ),
        Column(
            "trust",
            "Weight on malicious clients",
            "",
            "mean weight that the other clients' rows of the final coefficient matrix give to a malicious client, in "
            "units of 1/N, with its 95 % t interval over seeds: 1 is equal weights, 0 excludes malicious clients.",
            lambda row: weight(study.trust(row.result)),
        ),
        Column(
            "skew",
            words.SKEW["jensen_shannon"].title,
            "",
            f"of the clients' label distributions, {words.SKEW['jensen_shannon'].meaning}.",
            lambda row: _skew(row) if skewed else None,
        ),
        Column(
            "predictions",
            "Predictions",
            "MB",
            "encoded bytes of all clients over the whole run, without public samples.",
            lambda row: megabytes(row.result.predictions) if sized else None,
        ),
    ]
    return Table.of("table", shown, rows, latex=latex).filled()


def _skew(row: Row) -> Number | None:
    return mean([label_skew(run.label_counts).jensen_shannon for run in row.result.runs], hundredths)


def summary(variants: Sequence[Comparison], parameter: str, rows: Sequence[Row] = ()) -> str:
    """Return the value that validation accuracy chooses for each method, and its test accuracy, in words.

    `rows` are those of the table, if they are known.
    """
    rows, title = rows or table_rows(variants), title_of(parameter)
    picked = [row for row in rows if row.chosen]
    if not picked:
        none = f"No value of {title} was chosen: {study.no_choice(variants, variants[0].methods)}."
        return outcomes(rows, title) or none
    headline = Comparison([row.result for row in rows]).headline
    how = f"{metric_title(AFTER_TRANSFER).lower()}{words.in_measure(headline)}"
    sentences = []
    for row in picked:
        gain = f", {interval(row.minus_local)} percentage points to local-only at this value" if row.minus_local else ""
        reached = f"{accuracy(row.result.final[headline])} % {how}{gain}"
        sentences.append(f"Validation accuracy chooses {title} = {row.value} for {row.result.title}: {reached}.")
    for end, extreme in {"smallest": min, "largest": max}.items() if study.numeric(variants) else ():
        value = as_text(extreme(variant.value for variant in variants))
        if names := " and ".join(row.result.title for row in picked if row.value == value):
            sentences.append(
                f"{value} is the {end} value tried, so a value outside the range may be better for {names}."
            )
    if words.too_few(seeds := len(picked[0].result.seeds)):
        sentences.append(f"With only {plural(seeds, 'seed')}, these choices may be due to chance.")
    return " ".join(sentences)


def _caption(variants: Sequence[Comparison], title: str, lean: bool) -> str:
    methods, numbers = variants[0].methods, study.numeric(variants) and not lean
    seeds = len(next(iter(methods.values())).seeds)
    spread = f"; the {'band' if numbers else 'bar'} is the standard deviation over {seeds} seeds" if seeds > 1 else ""
    what = "Mean test accuracy over the clients at the end of the round,"
    if lean:
        sent = "the encoded predictions that were sent, without public samples"
        return f"{what} against the bytes of {sent}{spread}."
    caption = f"{what} by value of {title}{spread}."
    if any(study.chosen(variants, method) for method in methods):
        caption += " Rings mark the value that validation accuracy chooses."
    if numbers and not all(study.touched(variants, method) for method in methods):
        caption += " A dashed line does not depend on the setting."
    return caption


def _csv(parameter: str, row: Row, headline: str) -> dict[str, Any]:
    """Return a row of the table with its numbers unrounded."""
    found: dict[str, Any] = {"method": row.result.method, parameter: row.value, "seeds": len(row.result.seeds)}
    finals = row.result.final
    measured = {headline: finals[headline]} if headline != AFTER_TRANSFER else {}
    for name, final in {"test": finals[AFTER_TRANSFER], **measured, "validation": finals.get(VALIDATION)}.items():
        found |= {name: final and final.mean, f"{name}_std": final and final.seed_std}
    for name, spread in {"minus_local": row.minus_local, "trust": study.trust(row.result)}.items():
        ends = {"": "mean", "_low": "low", "_high": "high"}
        found |= {f"{name}{end}": getattr(spread, part, None) for end, part in ends.items()}
    return {**found, "predictions_bytes": row.result.predictions, "chosen": int(row.chosen)}
