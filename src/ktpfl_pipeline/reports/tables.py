"""The comparison of methods as a table, and its renderings.

A table is a data frame of text: a cell ``**96.9** ± 0.3`` is bold where the renderer can.
"""

import html
import re
import textwrap
from collections.abc import Sequence
from statistics import fmean, pstdev, stdev
from typing import TYPE_CHECKING, Any

from ktpfl_pipeline.analysis.results import (
    HEADLINE,
    Difference,
    Final,
    FinishedRun,
    MethodResult,
    honest,
    local_only,
    paired_difference,
    subject,
    worst_decile,
)
from ktpfl_pipeline.analysis.theorem import MIXTURES
from ktpfl_pipeline.core.metrics import LEDGERS, RoundRecord
from ktpfl_pipeline.reports import paper

if TYPE_CHECKING:
    import pandas as pd

NONE = "–"
MINUS = "−"
CONSOLE = 100
"""Characters in a line of the terminal."""
COMPACT = ("Method", "Worst decile (%)", "Traffic (MB)", "Time")
"""Columns that the terminal shows beside accuracy and the difference to local-only."""

TOLERANCE = 1e-6
"""Nats by which a loss may exceed another and still count as no worse."""

_BOLD = re.compile(r"\*\*(.+?)\*\*")
_SPREAD = re.compile(r" (± \S+|\[\S+, \S+\])$")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    MINUS: "$-$",
    NONE: "--",
    "·": r"$\cdot$",
    **{raised: f"$^{{{digit}}}$" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}


def transfer(results: Sequence[MethodResult]) -> str:
    """Return how knowledge comes back in these methods, in a word: distillation, aggregation, or transfer for both.

    A method whose clients send models, and beside them a few numbers that do not come back, aggregates.
    """
    parameters = any(result.traffic["parameters_up"] or result.traffic["parameters_down"] for result in results)
    knowledge = any(
        result.traffic["knowledge_down"] or result.traffic["knowledge_up"] > result.traffic["parameters_up"]
        for result in results
    )
    return {(True, False): "distillation", (False, True): "aggregation"}.get((knowledge, parameters), "transfer")


def comparison_table(results: Sequence[MethodResult], settings: dict[str, Any]) -> "pd.DataFrame":
    """Return one row a method: accuracy at both evaluation points, gain over local-only, spread, traffic, time.

    Args:
        results: the methods, in the order of the rows.
        settings: the experiment's; they decide whether the paper's numbers may stand beside ours.
    """
    import pandas as pd

    points = {f"{point_title(point, results)} (%)": point for point in (HEADLINE, "after_local")}
    bold = {point: _clear_best(results, point) for point in points.values()}
    local = local_only(results)
    rows = []
    for result in results:
        final = result.final[HEADLINE]
        row = {"Method": result.title}
        for column, point in points.items():
            row[column] = _accuracy(result.final[point], bold[point] is result) if point in result.final else NONE
        row["Minus local-only (points)"] = (
            NONE if local is None or result is local else interval(paired_difference(result, local))
        )
        row["Spread over clients (points)"] = percent(final.client_std, final.client_std_spread)
        row["Worst decile (%)"] = percent(final.worst_decile, final.worst_decile_spread)
        row["Traffic (MB)"] = megabytes(sum(result.traffic.values()))
        row["Time"] = duration(result.time)
        number = _paper(result, settings)
        row["Paper (%)"] = NONE if number is None else f"{number:.1f}"
        rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def difference_table(results: Sequence[MethodResult]) -> "pd.DataFrame":
    """Return what the report's subject gains over each other method, in points, paired by seed; one row a method.

    Empty where there is no other method.
    """
    import pandas as pd

    main, after = subject(results), point_title(HEADLINE, results)
    rows = []
    for result in results:
        if result is main:
            continue
        found = paired_difference(main, result)
        rows.append(
            {
                f"{main.title} minus": result.title,
                f"{after} (points)": interval(found),
                "Std over seeds (points)": NONE if found is None or found.std is None else f"{100 * found.std:.1f}",
                "After local training (points)": interval(
                    paired_difference(main, result, "after_local", "after_local")
                ),
                "Seeds in common": str(found.seeds if found else 0),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def theorem_table(result: MethodResult) -> "pd.DataFrame":
    """Return the check of Theorem 1 on a method's final models, one row a mixture; empty where it was not made.

    Losses are negative log-likelihoods in nats, on the half of the held-out images that the best mixture was fitted to
    and on the other half. The last two columns count, over all seeds, the clients for whom the mixture is no worse than
    both the client's own model and the average of all, within `TOLERANCE`; on the fitted half the certificate of that
    client comes on top.
    """
    import pandas as pd

    checks = [run.theorem for run in result.runs if run.theorem is not None]
    rows = []
    for mixture in MIXTURES if checks else ():
        if any(mixture not in check.fit for check in checks):
            continue
        rows.append(
            {
                "Mixture": mixture.capitalize(),
                "Loss, fitted half (nats)": _over_seeds([fmean(check.fit[mixture]) for check in checks], ".3f"),
                "Loss, other half (nats)": _over_seeds([fmean(check.test[mixture]) for check in checks], ".3f"),
                "Accuracy, other half (%)": _over_seeds(
                    [100 * fmean(check.accuracy[mixture]) for check in checks], ".1f"
                ),
                "No worse, fitted half (clients)": _no_worse(
                    mixture, [(check.fit, check.certificate) for check in checks]
                ),
                "No worse, other half (clients)": _no_worse(
                    mixture, [(check.test, [0.0] * len(check.certificate)) for check in checks]
                ),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def communication_table(results: Sequence[MethodResult]) -> "pd.DataFrame":
    """Return one row a method: MB by ledger and direction over the whole run, and kB per client and round."""
    import pandas as pd

    rows = []
    for result in results:
        total = sum(result.traffic.values())
        turns = sum(len(record.cohort) for run in result.runs for record in run.history) / len(result.runs)
        rows.append(
            {
                "Method": result.title,
                "Knowledge up (MB)": megabytes(result.traffic["knowledge_up"]),
                "Knowledge down (MB)": megabytes(result.traffic["knowledge_down"]),
                "Parameters up (MB)": megabytes(result.traffic["parameters_up"]),
                "Parameters down (MB)": megabytes(result.traffic["parameters_down"]),
                "Public data down (MB)": megabytes(result.traffic["public_down"]),
                "Total (MB)": megabytes(total),
                "Per client and round (kB)": _digits(total / turns / 1e3),
            }
        )
    return pd.DataFrame(rows, dtype=object)


def phase_table(results: Sequence[MethodResult]) -> "pd.DataFrame":
    """Return one row a method: wall time by phase of a round, summed over the rounds; a dash where it has none."""
    import pandas as pd

    phases = [phase for phase in {phase: None for result in results for phase in result.seconds} if phase != "round"]
    rows = [
        {
            "Method": result.title,
            **{
                phase.replace("_", " ").capitalize(): (
                    duration(result.seconds[phase]) if phase in result.seconds else NONE
                )
                for phase in phases
            },
            "Whole rounds": duration(result.time),
        }
        for result in results
    ]
    return pd.DataFrame(rows, dtype=object)


def run_table(results: Sequence[MethodResult]) -> "pd.DataFrame":
    """Return one row a run: its seed, its accuracies, and what finds it in MLflow."""
    import pandas as pd

    rows = []
    for result in results:
        for place, run in enumerate(result.runs):
            row = {"Method": result.title, "Seed": str(run.seed)}
            for point, final in result.final.items():
                row[f"{point_title(point, results)} (%)"] = percent(final.per_seed[place], None)
            rows.append({**row, "MLflow run": run.run_id or NONE, "Settings key": run.key or NONE})
    return pd.DataFrame(rows, dtype=object).fillna(NONE)


def data_files(results: Sequence[MethodResult]) -> dict[str, str]:
    """Return the report's numbers as CSV by file name, unrounded, every row with the run that it came from.

    ``runs.csv`` has the final values, bytes and seconds of every seed, ``rounds.csv`` accuracy and bytes of every
    round, ``clients.csv`` the final accuracy of every client, ``theorem.csv`` the check of Theorem 1 by client and
    mixture, and ``differences.csv`` the paired differences of the report's subject to each other method, with the runs
    of both. Accuracies and differences are in 0..1, losses in nats. A file without rows is left out.
    """
    import pandas as pd

    runs = [(result, run) for result in results for run in result.runs]
    files = {
        "runs.csv": [row for result, run in runs for row in _final_rows(result, run)],
        "rounds.csv": [
            {
                **_ids(run),
                "round": record.round,
                **{point: fmean(honest(values, run.adversaries)) for point, values in record.accuracy.items()},
                **{f"{ledger}_bytes": sum(record.traffic.get(ledger, [])) for ledger in LEDGERS},
                "diverged": len(record.diverged),
            }
            for _, run in runs
            for record in run.history
        ],
        "clients.csv": [
            {
                **_ids(run),
                "client": client,
                "architecture": architecture,
                **{point: run.final(point)[client] for point in result.final},
            }
            for result, run in runs
            for client, architecture in enumerate(run.architectures)
        ],
        "theorem.csv": [row for _, run in runs for row in _theorem_rows(run)],
        "differences.csv": _difference_rows(results),
    }
    return {name: pd.DataFrame(rows).to_csv(index=False) for name, rows in files.items() if rows}


def _ids(run: FinishedRun) -> dict[str, Any]:
    """Return what finds a run: the first columns of every CSV file."""
    return {"method": run.method, "seed": run.seed, "run_id": run.run_id, "key": run.key}


def _final_rows(result: MethodResult, run: FinishedRun) -> list[dict[str, Any]]:
    totals = {
        f"{ledger}_bytes": sum(sum(record.traffic.get(ledger, [])) for record in run.history) for ledger in LEDGERS
    }
    seconds = sum(record.seconds.get("round", 0.0) for record in run.history)
    return [
        {
            **_ids(run),
            "point": point,
            "accuracy": fmean(run.honest(point)),
            "client_std": pstdev(run.honest(point)),
            "worst_decile": worst_decile(run.honest(point)),
            **totals,
            "seconds": seconds,
        }
        for point in result.final
    ]


def _theorem_rows(run: FinishedRun) -> list[dict[str, Any]]:
    check = run.theorem
    if check is None:
        return []
    return [
        {
            **_ids(run),
            "client": client,
            "mixture": mixture,
            "fit_loss": check.fit[mixture][client],
            "test_loss": check.test[mixture][client],
            "test_accuracy": check.accuracy[mixture][client],
            "certificate": certificate,
        }
        for client, certificate in enumerate(check.certificate)
        for mixture in check.fit
    ]


def _difference_rows(results: Sequence[MethodResult]) -> list[dict[str, Any]]:
    main = subject(results)
    return [
        {
            "method": main.method,
            "minus": result.method,
            "point": point,
            **vars(found),
            "run_ids": " ".join(run.run_id for run in main.runs),
            "minus_run_ids": " ".join(run.run_id for run in result.runs),
        }
        for result in results
        if result is not main
        for point in main.final
        if (found := paired_difference(main, result, point, point))
    ]


def point_title(point: str, results: Sequence[MethodResult]) -> str:
    """Return what an evaluation point is called in a column."""
    return {HEADLINE: f"After {transfer(results)}", "after_local": "After local training"}.get(
        point, point.capitalize()
    )


def notes(results: Sequence[MethodResult], settings: dict[str, Any]) -> dict[str, str]:
    """Return what the columns of `comparison_table` mean, by column; and first whatever makes the rows unequal."""
    local, seeds, found = local_only(results), len(results[0].seeds), {}
    unequal = inequalities(results)
    if unequal:
        found["Not like for like"] = "; ".join(unequal) + "."
    how = transfer(results)
    found[f"After {how}"] = (
        "the model that each client uses at the end of the round, once knowledge has come back, on that client's test "
        "images; mean over all clients, in the round's cohort or not. This is the headline."
    )
    found["After local training"] = (
        "the same clients before any knowledge came back in that round. The two points can be far apart: compare "
        "methods at one of them." + _one_point(results)
    )
    found["Final values"] = (
        "every accuracy is the mean of the last five evaluations"
        + (
            ", then over seeds; ± is the sample standard deviation over seeds"
            if seeds > 1
            else "; with one seed, no ± is known"
        )
        + ". The best round is recorded with the results and is never the headline."
    )
    if len(results) > 1 and seeds > 1:
        found["Bold"] = (
            "an accuracy: the best of its column, where the 95 % interval of its difference to the runner-up, paired "
            "by seed, excludes zero. A difference: where its own interval does. No bold: the seeds do not decide."
        )
    found["Minus local-only"] = (
        "there is no local-only run beside these, so nothing here tells whether exchanging knowledge helped."
        if local is None
        else f"after {how}, paired by seed"
        + (
            ", with the 95 % t interval over the seeds. The intervals are not corrected for their number."
            if seeds > 1
            else "; with one seed there is no interval."
        )
    )
    worst = max(1, results[0].clients // 10)
    found["Spread over clients, worst decile"] = (
        f"standard deviation over the {results[0].clients} clients, and "
        f"{f'the mean over the {worst} lowest' if worst > 1 else 'the lowest'} of them, after {how}"
        + ("; each in every seed, then the mean ± standard deviation over seeds." if seeds > 1 else ".")
    )
    found["Traffic, time"] = (
        "all clients and rounds, up and down, 1 MB = 10⁶ bytes; wall time of the rounds with their evaluations"
        + (", mean over seeds." if seeds > 1 else ".")
    )
    found["Paper"] = _paper_note(results, settings)
    return found


def _one_point(results: Sequence[MethodResult]) -> str:
    """Name the methods in which nothing comes back after training, so that both points are one."""
    alike = [
        result.title
        for result in results
        if result.method != "local"
        and "after_local" in result.final
        and all(record.accuracy["after_local"] == record.accuracy[HEADLINE] for record in _evaluated(result))
    ]
    return f" They are one where knowledge comes back only before training: {', '.join(alike)}." if alike else ""


def _evaluated(result: MethodResult) -> list[RoundRecord]:
    return [record for run in result.runs for record in run.evaluated]


def inequalities(results: Sequence[MethodResult]) -> list[str]:
    """Return in what the methods of a comparison were not treated alike, in words; empty in nothing."""
    found = []
    if len({tuple(result.seeds) for result in results}) > 1:
        found.append("seeds differ (" + _each(results, lambda result: ", ".join(map(str, result.seeds))) + ")")
    if len({result.rounds for result in results}) > 1:
        found.append("rounds differ (" + _each(results, lambda result: str(result.rounds)) + ")")
    data: dict[int, set[str]] = {}
    for result in results:
        for run in result.runs:
            data.setdefault(run.seed, set()).add(str((run.partition, run.label_counts, run.architectures)))
    if any(len(kinds) > 1 for kinds in data.values()):
        found.append("the clients' data or models differ between methods")
    return found


def to_markdown(table: "pd.DataFrame") -> str:
    """Return the table in GitHub's Markdown, aligned so that its source can be read too."""
    cells = [[str(cell).replace("|", r"\|") for cell in row] for row in [list(table.columns), *table.to_numpy()]]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    lines = [_aligned(cells[0], widths), rule, *(_aligned(row, widths) for row in cells[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def to_html(table: "pd.DataFrame") -> str:
    """Return the table as an HTML ``table`` element without styles."""
    head = "".join(f'<th scope="col">{_header_html(str(column))}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{_html(row[0])}</th>' + "".join(f"<td>{_html(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in table.to_numpy()
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def to_latex(table: "pd.DataFrame") -> str:
    r"""Return the table as a LaTeX ``tabular``, which needs ``\usepackage{booktabs}``."""
    head = [_shortstack(str(column)) for column in table.columns]
    body = [[_latex(str(cell)) for cell in row] for row in table.to_numpy()]
    rows = [" & ".join(row) + r" \\" for row in [head, *body]]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def to_console(table: "pd.DataFrame") -> str:
    """Return a comparison in plain text, without some of its columns: at most 100 characters wide."""
    shown = [name for name in map(str, table.columns) if name in COMPACT or name.startswith(("After ", "Minus "))]
    heads = [_lines(column, 11) for column in shown]
    depth = max(map(len, heads))
    above = list(zip(*([""] * (depth - len(head)) + head for head in heads), strict=True))
    body = [[_plain(cell) for cell in row] for row in table[shown].to_numpy()]
    widths = [max(map(len, column)) for column in zip(*above, *body, strict=True)]
    widths[0] = min(widths[0], CONSOLE - sum(widths[1:]) - 2 * len(widths[1:]))
    body = [[textwrap.shorten(row[0], widths[0], placeholder="…"), *row[1:]] for row in body]
    lines = [*above, ["─" * width for width in widths], *body]
    return "\n".join("  ".join(_aligned(line, widths)).rstrip() for line in lines) + "\n"


def percent(mean: float, std: float | None) -> str:
    """Return an accuracy of 0..1 in percent, with its spread if it is known: ``96.9 ± 0.3``."""
    return f"{100 * mean:.1f}" + ("" if std is None else f" ± {100 * std:.1f}")


def signed(difference: float | None, std: float | None) -> str:
    """Return a difference of accuracies in points, with its sign: ``+1.0 ± 0.4``."""
    if difference is None:
        return NONE
    points = round(100 * difference, 1)
    sign = "+" if points > 0 else MINUS if points < 0 else ""
    return f"{sign}{abs(points):.1f}" + ("" if std is None else f" ± {100 * std:.1f}")


def interval(difference: Difference | None) -> str:
    """Return a difference in points, bold where its 95 % interval excludes zero: ``**+1.2** [+0.4, +2.0]``."""
    if difference is None:
        return NONE
    mean = signed(difference.mean, None)
    if difference.low is None or difference.high is None:
        return mean
    ends = f"[{signed(difference.low, None)}, {signed(difference.high, None)}]"
    return f"{f'**{mean}**' if difference.sign else mean} {ends}"


def megabytes(count: float) -> str:
    """Return bytes in MB of 10⁶ bytes, to three digits."""
    return _digits(count / 1e6)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: ``8.3 s``, ``42 s``, ``12.3 min``, ``2.4 h``."""
    if seconds == 0:
        return "0 s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3597 else f"{seconds / 3600:.1f} h"


def latex_escape(text: str) -> str:
    """Return `text` with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def _accuracy(final: Final, bold: bool) -> str:
    text = percent(final.mean, final.seed_std)
    mean, space, rest = text.partition(" ")
    return f"**{mean}**{space}{rest}" if bold else text


def _clear_best(results: Sequence[MethodResult], point: str) -> MethodResult | None:
    """Return the best method if the interval of its difference to the runner-up, paired by seed, is above zero."""
    ranked = sorted(
        (result for result in results if point in result.final), key=lambda result: result.final[point].mean
    )
    if len(ranked) < 2:
        return None
    lead = paired_difference(ranked[-1], ranked[-2], point, point)
    return ranked[-1] if lead and lead.sign > 0 else None


def _no_worse(mixture: str, losses: Sequence[tuple[dict[str, list[float]], list[float]]]) -> str:
    """Return for how many clients a mixture's loss is at most that of ``own`` and ``average``: ``57 of 60``.

    Args:
        mixture: a name of `MIXTURES`; for the two that it is compared with there is nothing to count.
        losses: for each seed, the losses by mixture, (N,) each, and the slack of each client.
    """
    if mixture in ("own", "average"):
        return NONE
    held = [
        loss <= min(own, average) + slack + TOLERANCE
        for by_mixture, slacks in losses
        for loss, own, average, slack in zip(
            by_mixture[mixture], by_mixture["own"], by_mixture["average"], slacks, strict=True
        )
    ]
    return f"{sum(held)} of {len(held)}"


def _over_seeds(values: Sequence[float], form: str) -> str:
    """Return the mean over seeds, with its sample standard deviation where there are several."""
    return f"{fmean(values):{form}}" + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")


def _paper(result: MethodResult, settings: dict[str, Any]) -> float | None:
    return paper.number(settings, result.method) if paper.same_setting(settings) else None


def _paper_note(results: Sequence[MethodResult], settings: dict[str, Any]) -> str:
    differing = paper.differences(settings)
    if differing:
        return (
            "no number of the paper stands beside ours, because the setting is another: " + "; ".join(differing) + "."
        )
    if all(_paper(result, settings) is None for result in results):
        return "we have no number of the paper for this setting that we can cite."
    return (
        "Table 1 of the paper, same data, partition, number of clients and architectures. It has no local-only row, "
        "and states neither rounds, temperature nor evaluation point: a landmark, not a target."
    )


def _each(results: Sequence[MethodResult], value: Any) -> str:
    return "; ".join(f"{result.title}: {value(result)}" for result in results)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the first cell padded on the right and the others on the left."""
    return [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def _plain(cell: Any) -> str:
    return _BOLD.sub(r"\1", str(cell)).replace(MINUS, "-").replace(NONE, "-")


def _html(cell: Any) -> str:
    text = _BOLD.sub(r"<strong>\1</strong>", html.escape(str(cell)))
    return _SPREAD.sub(r'<span class="spread"> \1</span>', text)


def _header_html(column: str) -> str:
    name, bracket, unit = column.partition(" (")
    return html.escape(name) + (f' <span class="unit">({html.escape(unit)}</span>' if bracket else "")


def _latex(text: str) -> str:
    return _BOLD.sub(r"\\textbf{\1}", latex_escape(text))


def _lines(column: str, width: int) -> list[str]:
    """Return the lines of a narrow column's name."""
    return textwrap.wrap(column, width, break_long_words=False, break_on_hyphens=False)


def _shortstack(column: str) -> str:
    lines = [latex_escape(line) for line in _lines(column, 9)]
    return r"\shortstack[r]{" + r"\\".join(lines) + "}" if len(lines) > 1 else lines[0]
