"""The report on the reproduction of the KT-pFL paper: finished cells of its tables and figures, next to its numbers.

A cell is empty until all of its seeds are finished. ``docs/how_to/paper.md`` lists the settings that differ.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby, starmap

from ktpfl_pipeline.analysis.comparison import Comparison, paired_difference
from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import Provenance, here_and_now
from ktpfl_pipeline.analysis.results import MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, difference, holm
from ktpfl_pipeline.analysis.study import Cell, seconds_left
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_TRANSFER
from ktpfl_pipeline.reports import figures, paper, words
from ktpfl_pipeline.reports.figures.traffic import KINDS, by_kind
from ktpfl_pipeline.reports.model import Block, Column, Notes, Picture, Section, Table, Text
from ktpfl_pipeline.reports.notes import left_out, warned
from ktpfl_pipeline.reports.numbers import MB, Entry, Number, accuracy, duration, interval, megabytes, signed
from ktpfl_pipeline.reports.paper import named
from ktpfl_pipeline.reports.render import terminal
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import METHOD, PAPER, TRAFFIC, VARIANT, methods_table, runs, variant_columns
from ktpfl_pipeline.reports.words import marked, metric_title, signs

AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "not significant"
"""The beginnings of a verdict on whether our result agrees with the paper's."""
DRAWN: Mapping[str, tuple[Callable[..., object], str]] = {
    "curves": (figures.accuracy_panels, "Mean test accuracy over the clients and seeds by round."),
    "bytes": (
        figures.bytes_panels,
        f"Bytes that all clients sent and received over the whole run, by kind; {MB}, means over seeds.",
    ),
    "traffic": (
        figures.traffic_panels,
        f"Final accuracy against the bytes that all clients sent and received; {MB}, means over seeds.",
    ),
}
NOTES = {
    "Accuracy": f"{words.OWN_MODEL} {words.averaged(None)} A cell is empty until all of its seeds are finished; the "
    "plan below states why a cell failed.",
    "Bold": words.BOLD,
    "Paper": "the number in Tables 1 to 6 of the paper, from its LaTeX source. The paper states no seeds and, except "
    "for Table 5, no spread. FedDF and pFedDF have two rows each: as the paper ran them (soft), and in full. Both rows "
    "show the same number of the paper. none: the paper does not have the method in this column.",
    "Intervals": f"{words.INTERVALS} In tables of many rows few seeds can decide little.",
    "Agrees": f"{AGREES}: the paper's number does not differ significantly from ours. {DIFFERS}: it does, and the "
    f"distance is stated. {UNDECIDED}: {words.FEW.lower()}.",
    "Order": f"{AGREES}: our difference, paired by seed, is significant and on the same side of zero as the paper's. "
    f"{DIFFERS}: it is significant and on the other side. {UNDECIDED}: it is not significant.",
}
Row = dict[str, Entry]
WHERE, VERDICT = Column("cell", "Cell"), Column("agrees", "Agrees")


def build(evidence: Evidence, made: Provenance) -> Report:
    """Return the report on all finished runs. `made` has the time, machine and command of the report."""
    parts, (cells, lacking) = evidence.parts, compared(evidence.cells)
    by_part = {name: [cell for cell in cells if cell.part == name] for name in parts}
    beside, ordered, best = beside_the_paper(cells), orders(cells), findings(cells)
    alike = groupby(cells, key=lambda cell: (cell.part, _column(cell), cell.failed or cell.method))
    once = {tuple(cell.keys.values()): cell for cell in reversed(cells)}  # without runs that an earlier part has too
    finished = [(f"{_place(cell)}, {cell.title}", cell.result) for cell in reversed(once.values()) if cell.result]
    took = duration(sum({run.key: run.seconds("round") for cell in cells for run in cell.runs}.values()))
    lost = lost_cells(cells)
    sections = [
        Section("", [Text(evidence.scale), Notes({**NOTES, **signs(cell.result for cell in cells if cell.result)})]),
        *(
            Section(f"{named(name)}: {title}", _blocks(name, shows, by_part[name]))
            for name, (title, shows) in parts.items()
        ),
        Section("Cell by cell next to the paper", [beside]),
        Section("Is the order of the methods the paper's?", [ordered], folded=True),
        Section("The best setting of the paper's study", [best]),
        Section("Finished and missing runs", [plan_table([list(own) for _, own in alike])], folded=True),
        runs(finished, [VARIANT.but(title=WHERE.title)], [AFTER_TRANSFER]),
    ]
    return Report(
        name="paper",
        title="The paper's tables and figures",
        kind="Reproduction of KT-pFL (NeurIPS 2021)",
        summary=summary(cells, [beside, ordered, best]),
        facts=[plural(len(parts), "part"), plural(len(cells), "cell"), f"{took} of training", *evidence.machines],
        made=made.by_title(),
        sections=sections,
        brief=[beside.without("part") if beside.rows else _by_column(cells)],
        warnings={"Left out": lacking, **warned(cell.result for cell in cells if cell.result)},
        failed=lost and f"{lost}, and the report states why. Give the same command again to try them again.",
    )


def compared(cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """Return the cells with results that can be compared within a column, and what is left out of them, in words."""
    found, texts = list[Cell](), list[str]()
    for column, own in _columns(cells):
        together = Comparison([cell.result for cell in own if cell.result])
        found += [replace(cell, kept=together.methods.get(cell.method)) for cell in own]
        if text := left_out(together):
            texts.append(f"{column}: {text}")
    return found, " ".join(texts)


def plan_text(cells: Sequence[Cell]) -> str:
    """Return the plan as plain text: columns, finished and remaining runs, hours, and hardware."""
    lines = []
    for part, group in groupby(cells, key=lambda cell: cell.part):
        own = list(group)
        methods = ", ".join(dict.fromkeys(cell.title for cell in own))
        lines.append(f"{named(part)}: {methods}; {words.listed_seeds(own[0].seeds)}")
    table = terminal.table(_by_column(cells), terminal.WIDEST)
    return "\n".join([*lines, "", table, progress(cells), here_and_now().machine, ""])


def lost_cells(cells: Sequence[Cell]) -> str:
    """State the number of cells that failed; empty if none did."""
    lost = sum(bool(cell.failed) for cell in cells)
    return f"{plural(lost, 'cell')} failed" if lost else ""


def progress(cells: Sequence[Cell]) -> str:
    """State the number of runs, the number of finished runs, and the time of the remaining runs."""
    keys, left = {key for cell in cells for key in cell.keys.values()}, {key for cell in cells for key in cell.left}
    known = seconds_left(cells)
    time = f", about {duration(known)}" if left and known is not None else ""
    failed = f"; {lost}" if (lost := lost_cells(cells)) else ""
    return f"{plural(len(keys), 'run')}, {len(keys) - len(left)} done, {len(left)} left{time}{failed}."


def plan_table(groups: Iterable[Sequence[Cell]]) -> Table:
    """Return one row per group of cells of a column: seeds, finished runs, remaining time, and how it was estimated.

    The time of a run that several rows have is counted in the first of these rows.
    """
    rows, counted = list[Row](), set[str]()
    for group in groups:
        own = {key: cell for cell in group for key in cell.left if key not in counted}
        shared, seeds = any(key in counted for cell in group for key in cell.left), group[0].seeds
        counted.update(own)
        known = seconds_left([replace(cell, keys={0: key}) for key, cell in own.items()])
        rows.append(
            {
                "cell": _place(group[0]),
                "method": ", ".join(cell.title for cell in group),
                "seeds": ", ".join(map(str, seeds)),
                "done": f"{sum(len(cell.runs) for cell in group)} of {len(seeds) * len(group)}",
                "left": "as above" if shared and not own else Number(known, duration) if own and known else None,
                "known_by": ", ".join(dict.fromkeys(cell.judged for cell in own.values())) or None,
                "failed": next((cell.failed for cell in group if cell.failed), None),
            }
        )
    titles = {"seeds": "Seeds", "done": "Runs done", "left": "Time left", "known_by": "Known by", "failed": "Failed"}
    shown = [WHERE.but(title="Cells"), METHOD.but(title="Methods"), *starmap(Column, titles.items())]
    return Table("plan", shown, rows).filled()


def _by_column(cells: Sequence[Cell]) -> Table:
    return plan_table(own for _, own in _columns(cells)).without("method", "seeds")


def accuracy_table(name: str, cells: Sequence[Cell], point: str = AFTER_TRANSFER) -> Table:
    """Return accuracy by method and column of a part, if all seeds are finished, and the paper's accuracy."""
    titles: dict[str, str] = {}
    for cell in cells:
        titles.setdefault(cell.method, marked(cell.result) if cell.result else cell.title)
    shown = [
        each
        for column, own in _columns(cells)
        for each in variant_columns(
            column,
            Comparison([cell.result for cell in own if cell.result]),
            {cell.method: _written(cell) for cell in own} if any(_number(cell) is not None for cell in own) else {},
            [cell.method for cell in own if cell.failed and not cell.result],
            point,
        )
    ]
    full = name if point == AFTER_TRANSFER else f"{name}-{point}"
    return methods_table(full, titles, shown, metric_title(point))


def beside_the_paper(cells: Sequence[Cell]) -> Table:
    """Return one row per cell with a number in the paper: our number, the paper's, and whether they agree."""
    rows, found = list[Row](), list[Difference | None]()
    for cell in cells:
        if (number := _number(cell)) is not None:
            found.append(difference([own - number for own in cell.final.per_seed]) if cell.final else None)
            place = {"part": named(cell.part), "cell": _column(cell), "method": cell.title}
            rows.append({**place, "ours": accuracy(cell.final), "paper": _written(cell)})
    shown = [Column("part", "Part"), WHERE, METHOD, Column("ours", "Ours", "%"), PAPER]
    return judged("beside", shown, Column("ours_minus", "Ours minus paper", "points"), rows, found, [0] * len(rows))


def orders(cells: Sequence[Cell]) -> Table:
    """Return one row per pair of methods in a column whose numbers in the paper differ: which method is better?"""
    rows, found, sides = list[Row](), list[Difference | None](), list[int]()
    for column, own in _columns(cells):
        known = [(cell, number) for cell in own if (number := _number(cell)) is not None]
        for (a, first), (b, second) in combinations(known, 2):
            if first != second:  # not two readings of one row of the paper
                found.append(paired_difference(a.result, b.result) if a.result and b.result else None)
                sides.append(1 if first > second else -1)
                pair = {"cell": f"{named(a.part)}: {column}", "methods": f"{a.title} minus {b.title}"}
                rows.append({**pair, "paper": signed(first - second)})
    shown = [WHERE, Column("methods", "Methods"), PAPER.but(unit="points")]
    return judged("orders", shown, Column("ours", "Ours", "points"), rows, found, sides)


def findings(cells: Sequence[Cell]) -> Table:
    """Return one row per best setting of KT-pFL in the paper: our accuracy there, minus our best with another setting.

    The other settings are all settings that the paper compared and that were run here.
    """
    rows, found = list[Row](), list[Difference | None]()
    of_kt_pfl = [cell for cell in cells if cell.method == "kt_pfl"]
    for (part, _), group in groupby(of_kt_pfl, key=lambda cell: (cell.part, cell.experiment)):
        own = {cell.label: cell for cell in group}
        for best, against in paper.best(part, next(iter(own.values())).settings, list(own)):
            if best in own:
                ours, others = own[best].result, [result for label in against if (result := own[label].result)]
                full = len(others) == len(against)
                found.append(paired_difference(ours, Comparison(others).ranked()[0]) if ours and full else None)
                where = f"{named(part)}: {paper.dataset(own[best].settings)}"
                rows.append({"cell": where, "best": best, "ours": accuracy(own[best].final)})
    shown = [WHERE, Column("best", "Best in the paper"), Column("ours", "Our accuracy there", "%")]
    minus = Column("minus_others", "Minus our best other setting", "points")
    return judged("best", shown, minus, rows, found, [1] * len(rows))


def judged(
    name: str,
    shown: Sequence[Column],
    minus: Column,
    rows: Sequence[Row],
    found: Sequence[Difference | None],
    sides: Sequence[int],
) -> Table:
    """Return a table of `rows` with their differences, corrected together by `holm`, and their `verdict`."""
    corrected = holm(dict(enumerate(found)))
    full = [
        {**row, minus.key: interval(corrected[place]), VERDICT.key: verdict(corrected[place], sides[place])}
        for place, row in enumerate(rows)
    ]
    return Table(name, [*shown, minus, VERDICT], full)


def verdict(found: Difference | None, side: int) -> str | None:
    """Return whether the sign of a difference agrees with the paper's `side`: 1, 0 or -1. None without a difference."""
    if found is None:
        return None
    if found.ends is None:
        return f"{UNDECIDED}, with {words.too_few(found.seeds)}"
    if side:
        return {side: AGREES, 0: UNDECIDED}.get(found.sign, DIFFERS)
    away = f"{abs(100 * found.mean):.1f} points {'above' if found.mean > 0 else 'below'}"
    return f"{DIFFERS}: {away}" if found.sign else AGREES


def summary(cells: Sequence[Cell], judged: Iterable[Table]) -> str:
    """State the number of finished runs, and how often the `judged` rows agree with the paper."""
    verdicts = [str(row["agrees"]) for table in judged for row in table.rows]
    counts = {word: sum(said.startswith(word) for said in verdicts) for word in (AGREES, DIFFERS, UNDECIDED)}
    known = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    compared = f"Compared with the paper's numbers, orders and best settings: {known}." if known else ""
    full = sum(cell.result is not None for cell in cells)
    return f"{full} of {plural(len(cells), 'cell')} finished. {progress(cells)} {compared}".strip()


def _blocks(name: str, shows: str, cells: Sequence[Cell]) -> list[Block]:
    """Return the table of a part, or its figure over the columns with at least one finished method."""
    if shows not in DRAWN:
        epochs = max(Comparison([cell.result for cell in cells if cell.result]).adaptations)
        further = f"Accuracy after {plural(epochs, 'extra epoch')} of local training for the models of every method:"
        adapted: list[Block] = [Text(further), accuracy_table(name, cells, f"{ADAPTED}{epochs}")] if epochs else []
        return [accuracy_table(name, cells), *adapted]
    drawn = {column: [cell.result for cell in own if cell.result] for column, own in _columns(cells)}
    finished = {column: results for column, results in drawn.items() if results}
    if not finished:
        return [Text("Nothing is finished yet.")]
    draw, caption = DRAWN[shows]
    shown: list[Block] = [Picture(name, draw(finished), caption)]  # type: ignore[arg-type]
    return [*shown, bytes_table(name, finished)] if shows == "bytes" else shown


def bytes_table(name: str, columns: Mapping[str, Sequence[MethodResult]]) -> Table:
    """Return the traffic of each method in each column in MB, by kind: public samples, parameters, predictions."""
    rows: list[Row] = [
        {
            **{"column": column, "method": result.title, TRAFFIC.key: megabytes(result.sent)},
            **{kind: megabytes(size) for kind, size in by_kind(result).items()},
        }
        for column, results in columns.items()
        for result in results
    ]
    kinds = [Column(kind, kind, "MB") for kind in KINDS]
    shown = [Column("column", "Column"), METHOD, *kinds, TRAFFIC.but(title="All", meaning="")]
    return Table(f"{name}-bytes", shown, rows)


def _columns(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Return the cells by the title of their column. Equal titles are extended by the experiment."""
    groups = groupby(cells, key=lambda cell: (cell.part, _column(cell), cell.experiment))
    columns = {place: list(own) for place, own in groups}
    alike = Counter((part, column) for part, column, _ in columns)
    return [
        (column if alike[part, column] == 1 else f"{column}, {experiment}", own)
        for (part, column, experiment), own in columns.items()
    ]


def _column(cell: Cell) -> str:
    return f"{paper.dataset(cell.settings)}, {cell.label}"


def _place(cell: Cell) -> str:
    return f"{named(cell.part)}: {_column(cell)}"


def _number(cell: Cell) -> float | None:
    """Return the paper's accuracy in a cell as a fraction of 1, or None if the paper has no such number."""
    cited = paper.of_cell(cell)
    return None if cited is None else cited.value / 100


def _written(cell: Cell) -> str:
    return str(paper.of_cell(cell) or "none")
