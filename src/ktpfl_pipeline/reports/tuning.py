"""The report on a tuning: the candidates of each method, and the values that validation accuracy chooses.

Test accuracies of the trials are not shown: neither in this report, nor on the terminal, nor in MLflow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ktpfl_pipeline.analysis.frames import frame, to_csv
from ktpfl_pipeline.analysis.study import Cell, Study, highest
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.methods import slug, title
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.reports.model import Block, Column, Picture, Section, Settings, Table, Text
from ktpfl_pipeline.reports.notes import warned
from ktpfl_pipeline.reports.numbers import NONE, Entry, accuracy, signed
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.tables import CHOSEN, METHOD, VALIDATION
from ktpfl_pipeline.reports.words import as_text, as_texts, averaged, clients, listed_seeds, plain, sentences, too_few


def build(name: str, tuning: Study, values: str) -> Report:
    """Return the report on a tuning; `values` is the text of the chosen values that comparisons read."""
    settings, outcome = tuning.cells[0].settings, summary(tuning)
    about = Text("Each trial is one MLflow run per seed, below the tuning's run.")
    main, (history, slices) = table(tuning, outcome), search(tuning)
    spaces = {
        title(method): {entry: _tried(tried) for entry, tried in space.items()}
        for method, space in tuning.asked["spaces"].items()
        if method in tuning.methods
    }
    return Report(
        name=name,
        title=name,
        kind="Tuning",
        summary=outcome,
        facts=[
            f"private {settings['private']['source']}",
            f"{clients(settings)}, {plain(settings['partition']['scheme'])}",
            plural(settings["rounds"], "round"),
            listed_seeds(tuning.asked["seeds"]),
        ],
        sections=[
            Section("", main.explained()),
            Section("Course of the search", history),
            Section("Accuracy by hyperparameter", slices, folded=len(slices) > 3),
            Section("What was searched", [Settings(spaces)]),
            Section("Settings of all trials", [Settings({"": as_texts(settings)})], folded=True),
            Section("Trials", [trial_table(tuning), about], folded=True),
        ],
        brief=[main.without("configured", "configured_validation", "candidates")],
        warnings=warned(cell.result for cell in tuning.cells if cell.result),
        data={"trials.csv": to_csv(frame(trials(tuning)[1])), "hyperparameters.json": values},
    )


def search(tuning: Study) -> tuple[list[Block], list[Block]]:
    """Return figures of the course of the search and of each method; none unless one has two finished candidates."""
    searched = {
        method: cells
        for method, cells in tuning.methods.items()
        if cells[0].value and sum(cell.score is not None for cell in cells) > 1
    }
    if not searched:
        return [], []
    course = "Validation accuracy of each candidate in the order of the trials; lines: the best so far. 1: configured."
    by = "validation accuracy by the value of each hyperparameter; darker: later candidates."
    spaces = tuning.asked["spaces"]
    slices: list[Block] = [
        Picture(f"slice_{slug(method)}", figures.search_slices(spaces[method], cells), f"{title(method)}: {by}")
        for method, cells in searched.items()
    ]
    return [Picture("history", figures.search_history(searched), course)], slices


def summary(tuning: Study) -> str:
    """Count the methods whose chosen values differ from the configured ones, and list values at the end of a range."""
    searched = {method: cells for method, cells in tuning.methods.items() if cells[0].value}
    moved = [method for method, cells in searched.items() if highest(cells) is not cells[0]]
    first = (
        f"Validation accuracy chooses other values than the configured ones for {len(moved)} of "
        f"{plural(len(searched), 'method')} with hyperparameters to choose, among at most "
        f"{plural(tuning.asked['trials'], 'candidate')} each."
    )
    edges = [
        f"{title(method)}'s {', '.join(found)}"
        for method, cells in searched.items()
        if (found := _edges(tuning.asked["spaces"][method], highest(cells).value))
    ]
    beyond = (
        f"These values are at the end of the searched range, so values outside it may be better: {'; '.join(edges)}."
    )
    seeds = len(tuning.asked["seeds"])
    chance = f"With only {plural(seeds, 'seed')}, the order of close candidates may be due to chance."
    return sentences(first, beyond if edges else "", chance if too_few(seeds) else "")


def _edges(space: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """Return the chosen values that are the smallest or largest of at least three numbers, or an end of a range."""
    found = []
    for name, value in chosen.items():
        ranged = isinstance(space[name], Mapping)
        tried = [space[name]["low"], space[name]["high"]] if ranged else space[name]
        numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
        if (ranged or len(numbers) > 2) and value in (min(numbers), max(numbers)):
            found.append(f"{name}={as_text(value)}")
    return found


def table(tuning: Study, latex: str = "") -> Table:
    """Return one row per method: the chosen and the configured values with their validation accuracies."""
    meaning = (
        "of each client's own model at the end of the round, on samples that no client is tested on; "
        f"{averaged(len(tuning.asked['seeds']))} The highest of several accuracies is too optimistic, so compare "
        "methods on test data, with other seeds."
    )

    def gain(cells: Sequence[Cell]) -> Entry:
        best, first = highest(cells).score, cells[0].score
        return None if not cells[0].value or best is None or first is None else signed(best - first)

    shown = [
        METHOD.but(value=lambda cells: cells[0].title),
        CHOSEN.but(
            meaning="the candidate with the highest validation accuracy, the first of equal ones. Test accuracy is "
            "not used.",
            value=lambda cells: _changes(highest(cells)),
        ),
        VALIDATION.but(meaning=meaning, value=lambda cells: _validation(highest(cells))),
        Column(
            "configured",
            "Configured",
            "",
            "the values of conf/, which are always the first candidate.",
            lambda cells: _changes(cells[0]),
        ),
        VALIDATION.but(
            key="configured_validation", title="Configured: validation", value=lambda cells: _validation(cells[0])
        ),
        Column("gain", "Gain", "points", "", gain),
        Column(
            "candidates",
            "Candidates",
            "",
            f"at most {tuning.asked['trials']} per method; one if the method has nothing to choose. Diverged: the "
            "training became NaN or infinite.",
            lambda cells: str(len(cells)),
        ),
    ]
    return Table.of("table", shown, tuning.methods.values(), latex=latex)


def trial_table(tuning: Study) -> Table:
    """Return one row per trial: its values, its validation accuracy, and the ids of its runs in MLflow."""
    shown = [Column("trial", "Trial"), Column("values", "Values"), VALIDATION, CHOSEN, Column("run_ids", "MLflow runs")]
    return Table("trials", [METHOD, *shown], trials(tuning)[0])


def trials(tuning: Study) -> tuple[list[dict[str, Entry]], list[dict[str, Any]]]:
    """Return one row per candidate, in the order of the search: for the table, and unrounded for the CSV file."""
    rows, unrounded = list[dict[str, Entry]](), list[dict[str, Any]]()
    for cells in tuning.methods.values():
        for number, cell in enumerate(cells, 1):
            chosen, values, ids = cell is highest(cells), _changes(cell), cell.result.run_ids if cell.result else []
            shown = {"method": cell.title, "trial": str(number), "values": values, "validation": _validation(cell)}
            rows.append({**shown, "chosen": "chosen" * chosen, "run_ids": ", ".join(filter(None, ids)) or NONE})
            numbers = {"method": cell.method, "trial": number, "values": values or "", "validation": cell.score}
            unrounded.append({**numbers, "chosen": int(chosen), "run_ids": " ".join(ids)})
    return rows, unrounded


def _changes(cell: Cell) -> str | None:
    return ", ".join(f"{name}={as_text(value)}" for name, value in cell.value.items()) or None


def _validation(cell: Cell) -> Entry:
    return accuracy(cell.validation) or "diverged"


def _tried(tried: Any) -> str:
    if not isinstance(tried, Mapping):
        return as_text(tried)
    return f"{as_text(tried['low'])} to {as_text(tried['high'])}{', on a logarithmic scale' * bool(tried.get('log'))}"
