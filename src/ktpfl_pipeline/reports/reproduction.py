"""The KT-pFL paper's tables and figures as far as they were run, cell by cell beside the paper's numbers.

A cell is empty until all of its seeds are finished. The list of settings is made from the configuration of each cell
and from what the paper states (`reports.paper.stated`).

Arguments that the functions share: `cells`, all of them, in the order of the configuration.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby

from ktpfl_pipeline.analysis.cells import Cell, seconds_left
from ktpfl_pipeline.analysis.contrasts import adaptations, clear_best, paired_difference
from ktpfl_pipeline.analysis.provenance import Provenance, here_and_now
from ktpfl_pipeline.analysis.results import HEADLINE, MethodResult
from ktpfl_pipeline.analysis.roles import ranked
from ktpfl_pipeline.analysis.statistics import Difference, difference
from ktpfl_pipeline.core.metrics import ADAPTED
from ktpfl_pipeline.reports import figures, paper, words
from ktpfl_pipeline.reports.figures.traffic import by_kind
from ktpfl_pipeline.reports.model import Block, Notes, Picture, Section, Table, Text
from ktpfl_pipeline.reports.numbers import Entry, Number, accuracy, duration, interval, megabytes, points
from ktpfl_pipeline.reports.paper.listing import SETTINGS, named, settings_table
from ktpfl_pipeline.reports.render import terminal
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import marked, runs, signs
from ktpfl_pipeline.reports.words import plural, point_title

AGREES, DIFFERS, UNDECIDED = "agrees", "differs", "undecided"
DRAWN: Mapping[str, tuple[Callable[..., object], str]] = {
    "curves": (figures.accuracy_panels, "Mean test accuracy over the clients and seeds by round."),
    "bytes": (
        figures.bytes_panels,
        "What all clients sent and received over the whole run by what it is, 1 MB = 10⁶ bytes, means over seeds.",
    ),
    "traffic": (
        figures.traffic_panels,
        "Final accuracy against what all clients sent and received, 1 MB = 10⁶ bytes, means over seeds.",
    ),
}
NOTES = {
    "Accuracy": f"{words.HEADLINE} {words.averaged(None)} A cell is empty until all of its seeds are finished; "
    "why one failed stands under what is done.",
    "Bold": f"{words.BEST}; a difference, where its own one does. No bold: the seeds do not decide.",
    "Paper": "the paper's number, of Tables 1 to 6, from its LaTeX source. It states no seeds and, but for Table 5, no "
    "spread. FedDF and pFedDF are there as the paper ran them, (soft), and in full: one number is shown next to both.",
    "Agrees": f"{AGREES}: the paper's number lies in the 95 % t interval of ours over the seeds. {DIFFERS}: it does "
    f"not; how far ours lies from it stands beside. {UNDECIDED}: {words.FEW.lower()}.",
    "Order": f"{AGREES}: the 95 % interval of our difference, paired by seed, lies on the paper's side of zero. "
    f"{DIFFERS}: it lies on the other. {UNDECIDED}: it holds zero. Intervals are not corrected for their number.",
}


def build(scale: str, parts: Mapping[str, tuple[str, str]], cells: Sequence[Cell], made: Provenance) -> Report:
    """Return the report.

    Args:
        scale: what is said of the settings.
        parts: of each table and figure its title, and how it is shown: as a table, or a name of `DRAWN`.
        cells: of these.
        made: when, where and by what it is made.
    """
    by_part = {name: [cell for cell in cells if cell.part == name] for name in parts}
    beside, ordered, best = beside_the_paper(cells), orders(cells), findings(cells)
    finished = [(_where(cell), cell.result) for cell in _once(cells) if cell.result]
    sections = [
        Section("", [Text(scale), Notes({**NOTES, **signs(cell.result for cell in cells if cell.result)})]),
        *(
            Section(f"{named(name)}: {title}", _blocks(name, shows, by_part[name]))
            for name, (title, shows) in parts.items()
        ),
        Section("Cell by cell beside the paper", [beside]),
        Section("In the paper's order?", [ordered], folded=True),
        Section("The best setting of the paper's study", [best]),
        Section("In what the settings differ from the paper's", [Text(SETTINGS), settings_table(cells, True)]),
        Section("In what the settings agree with the paper's", [settings_table(cells, False)], folded=True),
        Section("What is done, and what is left", [plan_table(_alike(cells))], folded=True),
        runs([({"Cell": where}, result) for where, result in finished], [HEADLINE]),
    ]
    return Report(
        name="paper",
        title="The paper's tables and figures",
        kind="Reproduction of KT-pFL (NeurIPS 2021)",
        summary=summary(cells, [beside, ordered, best]),
        facts=[plural(len(parts), "part"), plural(len(cells), "cell"), made.machine],
        made=made.told(),
        sections=[section for section in sections if section],
        brief=[beside.without("Part") if beside.rows else _by_column(cells)],
    )


def told(cells: Sequence[Cell]) -> str:
    """Return the plan as plain text: each column, what is done and left, and the hours, on which hardware."""
    lines = []
    for part, group in groupby(cells, key=lambda cell: cell.part):
        own = list(group)
        methods = ", ".join(dict.fromkeys(cell.title for cell in own))
        lines.append(f"{named(part)}: {methods}; {words.listed_seeds(own[0].seeds)}")
    table = terminal.table(_by_column(cells), terminal.WIDEST)
    return "\n".join([*lines, "", table, progress(cells), here_and_now().machine, ""])


def progress(cells: Sequence[Cell]) -> str:
    """Say how many runs there are, how many are done, and how long the others take."""
    keys, left = {key for cell in cells for key in cell.keys.values()}, {key for cell in cells for key in cell.left}
    lost = sum(bool(cell.failed) for cell in cells)
    known = seconds_left(cells)
    time = f", about {duration(known)}" if left and known is not None else ""
    failed = f"; {plural(lost, 'cell')} failed" if lost else ""
    return f"{plural(len(keys), 'run')}, {len(keys) - len(left)} done, {len(left)} left{time}{failed}."


def plan_table(groups: Iterable[Sequence[Cell]]) -> Table:
    """Return one row for each group of cells of a column: their seeds, the runs done, the time left, how it is known.

    A run that an earlier row has too is told there.
    """
    rows, told = list[dict[str, Entry]](), set[str]()
    for group in groups:
        own = {key: cell for cell in group for key in cell.left if key not in told}
        shared = any(key in told for cell in group for key in cell.left)
        told.update(own)
        known = seconds_left([replace(cell, keys={0: key}) for key, cell in own.items()])
        first, failed = group[0], [cell.failed for cell in group if cell.failed]
        rows.append(
            {
                "Cells": f"{named(first.part)}: {_column(first)}",
                "Methods": ", ".join(cell.title for cell in group),
                "Seeds": ", ".join(map(str, first.seeds)),
                "Runs done": f"{sum(len(cell.runs) for cell in group)} of {len(first.seeds) * len(group)}",
                "Time left": "as above" if shared and not own else Number(known, duration) if own and known else None,
                "Known by": ", ".join(dict.fromkeys(cell.judged for cell in own.values())) or None,
                "Failed": failed[0] if failed else None,
            }
        )
    return Table.of("plan", rows).filled()


def _by_column(cells: Sequence[Cell]) -> Table:
    return plan_table(own for _, own in _columns(cells)).without("Methods", "Seeds")


def accuracy_table(name: str, cells: Sequence[Cell], point: str = HEADLINE) -> Table:
    """Return the methods by column: accuracy in percent where all seeds are finished, and what is known of the paper's.

    Args:
        name: the part's.
        cells: of the part.
        point: evaluation point; the paper's numbers stand beside the headline alone.
    """
    rows: dict[str, dict[str, Entry]] = {}
    for cell in cells:
        rows.setdefault(cell.method, {"Method": marked(cell.result) if cell.result else cell.title})
    for column, own in _columns(cells):
        finished = [result for cell in own if (result := cell.result)]
        best = clear_best(finished, point) if finished else None
        cited = point == HEADLINE and any(_number(cell) is not None for cell in own)
        for cell in own:
            result = cell.result
            lead = best is not None and cell.method == best.method
            stopped = "failed" if cell.failed else None
            rows[cell.method][f"{column} (%)"] = accuracy(result.final.get(point), lead) if result else stopped
            if cited:
                rows[cell.method][f"{column}: paper (%)"] = _written(cell)
    return Table.of(name if point == HEADLINE else f"{name}-{point}", list(rows.values()), point_title(point))


def beside_the_paper(cells: Sequence[Cell]) -> Table:
    """Return one row for each cell of which the paper's number is known: ours, the paper's, and whether they agree."""
    rows: list[dict[str, Entry]] = []
    for cell in cells:
        number = _number(cell)
        if number is None:
            continue
        found = difference([own - number for own in cell.final.per_seed]) if cell.final else None
        rows.append(
            {
                "Part": named(cell.part),
                "Cell": _column(cell),
                "Method": cell.title,
                "Ours (%)": accuracy(cell.final),
                "Paper (%)": _written(cell),
                "Ours minus paper (points)": interval(found),
                "Agrees": verdict(found, 0),
            }
        )
    return Table.of("beside", rows)


def orders(cells: Sequence[Cell]) -> Table:
    """Return one row for two methods of a column whose numbers in the paper are known and differ: who is ahead?"""
    rows: list[dict[str, Entry]] = []
    for column, own in _columns(cells):
        known = [(cell, number) for cell in own if (number := _number(cell)) is not None]
        for (a, first), (b, second) in combinations(known, 2):
            if first == second:  # two readings of one row of the paper's
                continue
            found = paired_difference(a.result, b.result) if a.result and b.result else None
            rows.append(
                {
                    "Cell": f"{named(a.part)}: {column}",
                    "Methods": f"{a.title} minus {b.title}",
                    "Paper (points)": points(first - second),
                    "Ours (points)": interval(found),
                    "Agrees": verdict(found, 1 if first > second else -1),
                }
            )
    return Table.of("orders", rows)


def findings(cells: Sequence[Cell]) -> Table:
    """Return one row where the paper says which setting is best for KT-pFL: ours there, against our best of the others.

    Others are those that the paper compared and that are run here.
    """
    rows: list[dict[str, Entry]] = []
    of_kt_pfl = [cell for cell in cells if cell.method == "kt_pfl"]
    for (part, _), group in groupby(of_kt_pfl, key=lambda cell: (cell.part, cell.experiment)):
        own = {cell.label: cell for cell in group}
        settings = next(iter(own.values())).settings
        for best, against in paper.best(part, settings, list(own)):
            if best not in own:
                continue
            ours, finished = own[best], [result for label in against if (result := own[label].result)]
            found = None
            if ours.result and len(finished) == len(against):
                found = paired_difference(ours.result, ranked(finished)[0])
            rows.append(
                {
                    "Cell": f"{named(part)}: {paper.dataset(settings)}",
                    "Best in the paper": best,
                    "Ours there (%)": accuracy(ours.final),
                    "Minus our best of the others (points)": interval(found),
                    "Agrees": verdict(found, 1),
                }
            )
    return Table.of("best", rows)


def verdict(found: Difference | None, side: int) -> str | None:
    """Say whether a difference is as the paper has it: on this `side` of zero, or for side 0, at zero; None of none."""
    if found is None:
        return None
    if found.ends is None:
        return f"{UNDECIDED}, {words.too_few(found.seeds)}"
    if side == 0:
        away = f"{abs(100 * found.mean):.1f} points {'above' if found.mean > 0 else 'below'}"
        return AGREES if found.sign == 0 else f"{DIFFERS}: {away}"
    return {side: AGREES, 0: UNDECIDED}.get(found.sign, DIFFERS)


def summary(cells: Sequence[Cell], tables: Iterable[Table]) -> str:
    """Say how much is finished, and how often that agrees with what is known of the paper."""
    verdicts = [str(row[-1]) for table in tables for row in table.rows if table.columns[-1] == "Agrees" and row[-1]]
    full = sum(cell.result is not None for cell in cells)
    counts = {word: sum(each.startswith(word) for each in verdicts) for word in (AGREES, DIFFERS, UNDECIDED)}
    known = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    told = f"Of what is known of the paper's numbers, orders and best settings: {known}." if known else ""
    return f"{full} of {plural(len(cells), 'cell')} finished. {progress(cells)} {told}".strip()


def _blocks(name: str, shows: str, cells: Sequence[Cell]) -> list[Block]:
    """Return the table of a part, or its figure over the columns of which a method is finished."""
    if shows not in DRAWN:
        epochs = max(adaptations([cell.result for cell in cells if cell.result]))
        further = f"The same after {plural(epochs, 'further epoch')} of local training for the models of every method:"
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
    """Return the MB of each method in each column by what they are: public samples, parameters, soft predictions."""
    rows: list[dict[str, Entry]] = [
        {
            "Column": column,
            "Method": result.title,
            **{f"{kind} (MB)": megabytes(count) for kind, count in by_kind(result).items()},
            "All (MB)": megabytes(result.sent),
        }
        for column, results in columns.items()
        for result in results
    ]
    return Table.of(f"{name}-bytes", rows)


def _columns(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Return the cells by column, with what it is called in its part."""
    groups = [list(own) for _, own in groupby(cells, key=lambda cell: (cell.part, cell.experiment, _column(cell)))]
    alike = Counter((own[0].part, _column(own[0])) for own in groups)
    return [
        (_column(first) if alike[first.part, _column(first)] == 1 else f"{_column(first)}, {first.experiment}", own)
        for own in groups
        for first in own[:1]
    ]


def _alike(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return each cell by itself, and those of a column that failed for one reason together."""
    groups = groupby(cells, key=lambda cell: (cell.part, _column(cell), cell.failed or cell.method))
    return [list(own) for _, own in groups]


def _column(cell: Cell) -> str:
    return f"{paper.dataset(cell.settings)}, {cell.label}"


def _where(cell: Cell) -> str:
    return f"{named(cell.part)}: {_column(cell)}, {cell.title}"


def _once(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells without those whose runs stand in an earlier part."""
    return list({tuple(cell.keys.values()): cell for cell in reversed(cells)}.values())[::-1]


def _number(cell: Cell) -> float | None:
    """Return the paper's accuracy in a cell, 0..1; None where it has none."""
    cited = paper.of_cell(cell)
    return None if cited is None else cited.value / 100


def _written(cell: Cell) -> str:
    """Return the paper's entry for a cell."""
    return str(paper.of_cell(cell) or "not in the paper")
