"""Tables of the paper's tables: finished runs of `make paper` are kept as small files, and pages are drawn from them.

    python benchmarks/paper_tables.py keep light    after make paper SCALE=light, also while runs are left
    python benchmarks/paper_tables.py page          the tables of docs/results/paper.md and paper_table_2.md, and the
                                                    differences of Table 1 in benchmarks/results/paper_tables.md
    python benchmarks/paper_tables.py draw          a report of each scale in data/08_reporting, without any images

`make paper` writes finished runs to `data/07_model_output/paper_evidence.json.gz`. `keep` merges this file into
`benchmarks/results/paper/<scale>.json.gz`, cell by cell and seed by seed. Differences are paired by seed, and corrected
for all rows of a column.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure import RESULTS, ROOT
from studies import LOCAL, Tables, drawn, named, write

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.comparison import paired_difference
from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports import paper, reproduction
from ktpfl_pipeline.reports.numbers import Entry, accuracy, corrected

FINISHED, KEPT = ROOT / "data/07_model_output/paper_evidence.json.gz", RESULTS / "paper"
REPORTS = ROOT / "data/08_reporting/paper_kept"
PAGE, PAGE_2 = (ROOT / "docs" / "results" / name for name in ("paper.md", "paper_table_2.md"))
DIFFERENCES = RESULTS / "paper_tables.md"
AFTER, PAPERS, JOINT = f"{ADAPTED}10", "kt_pfl", "kt_pfl_joint"
BOTH = (AFTER_TRANSFER, AFTER)
METHODS = (
    *("kt_pfl", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft", "pfeddf_soft", "feddf", "pfeddf", "kt_pfl_joint"),
    *("local", "local_matched"),
)
"""The rows of Table 1."""
COLUMNS = {
    "Fashion-MNIST with all classes": ("hetero_fashion_mnist", "all labels"),
    "Fashion-MNIST with two classes": ("hetero_fashion_mnist", "two labels"),
    "CIFAR-10 with all classes": ("hetero_cifar", "all labels"),
    "CIFAR-10 with two classes": ("hetero_cifar", "two labels"),
}
"""The columns of Table 1: experiment and label."""
TABLE_1, LOSSES = "table1_t2", {"table1_t2": "T²", "table1": "plain", "table1_mean": "mean"}
"""The part that the page shows as Table 1, and the loss of distillation by part."""
DISTILLED = ("kt_pfl", "sim_pfl", "topk_pfl", "fedmd", "feddf_soft")
"""The methods whose clients distill, without averages of parameters."""
MINUS_KT_PFL = [(PAPERS, AFTER_TRANSFER), (PAPERS, AFTER), (JOINT, AFTER)]
MINUS_JOINT = [(PAPERS, AFTER), (JOINT, AFTER_TRANSFER), (JOINT, AFTER)]
"""What the tables of differences show besides the differences to local-only training: a method minus the row's."""
SETTINGS = {
    **{f"E = {epochs}": ("table3", f"E = {epochs}") for epochs in (5, 10, 15, 20)},
    **{f"R = {epochs}": ("table3", f"R = {epochs}") for epochs in (2, 3, 5)},
    **{f"ρ = {rho}": ("table4", f"ρ = {rho}") for rho in (0.1, 0.3, 0.5, 0.7)},
    "public set: an open part of Fashion-MNIST": ("table5", "an open part"),
    "10 samples per round": ("table6", "|D_r| = 10"),
    **{f"{samples} samples": ("table6", f"|D_r| = {samples}") for samples in (100, 500)},
    "1,000 samples": ("table6", "|D_r| = 1000"),
}
"""The rows of Tables 3 to 6 at the scale two_cores: part and label."""
LIGHT_SETTINGS = {"E = 20, R = 1, ρ = 2, 3,000 samples": ("table3", "R = 1"), "ρ = 0.1": ("table4", "ρ = 0.1")}
"""The rows of Tables 3 to 6 at the scale light: part and label."""
TABLE_2 = {
    "## 20 clients\n\n**Fashion-MNIST,**": ("homo_fashion_mnist", "20 clients"),
    "**CIFAR-10,** three seeds:": ("homo_cifar", "20 clients"),
    "and 25 test samples per client instead of 425.": ("homo_fashion_mnist", "100 clients"),
    "**CIFAR-10,** three seeds (Per-FedAvg: two)": ("homo_cifar", "100 clients"),
}
"""The tables of Table 2 by the text above them: experiment and label."""


def keep(scale: str, finished: Path = FINISHED, kept: Path = KEPT) -> None:
    """Merge finished runs into the file of a scale, such as ``light``, and print their number."""
    found, place = evidence.load(finished), kept / f"{scale}.json.gz"
    if place.exists():
        found = merged(evidence.load(place), found)
    evidence.save(found, place)
    print(f"{len({run.key for cell in found.cells for run in cell.runs})} finished runs of the scale {scale}")


def merged(old: Evidence, new: Evidence) -> Evidence:
    """Return the newer evidence with the further parts, cells and seeds of the older evidence.

    Tables come first, in the order of their names, and then figures. The cells of a variant are adjacent.
    """
    found = {**old.parts, **new.parts}
    parts = {name: found[name] for name in sorted(found, key=lambda name: (name.startswith("figure"), name))}
    cells: dict[tuple[str, str, str, str], Cell] = {}
    for cell in (*old.cells, *new.cells):
        place = cell.part, cell.experiment, cell.label, cell.method
        cells[place] = _together(cells[place], cell) if place in cells else cell
    names, experiments, variants = list(parts), [place[:2] for place in cells], [place[:3] for place in cells]

    def order(place: tuple[str, str, str, str]) -> tuple[int, int, int]:
        return names.index(place[0]), experiments.index(place[:2]), variants.index(place[:3])

    ordered = [cells[place] for place in sorted(cells, key=order)]
    return Evidence(new.scale, parts, ordered, list(dict.fromkeys([*old.machines, *new.machines])))


def _together(old: Cell, new: Cell) -> Cell:
    """Return the newer cell with the further seeds of the older cell.

    If their settings differ, the older cell is returned if it has more runs, else the newer. If one of the cells is
    finished, only finished seeds are added, because tables leave a cell with a missing run empty.
    """
    before, now = (({**cell.settings, "seeds": []}, cell.hyperparameters) for cell in (old, new))
    if before != now:
        return old if len(old.runs) > len(new.runs) else new
    runs = {run.seed: run for run in (*old.runs, *new.runs)}
    finished = any(cell.runs and len(cell.runs) == len(cell.seeds) for cell in (old, new))
    seeds = sorted(runs if finished else {*old.seeds, *new.seeds})
    keys = {**old.keys, **new.keys, **{seed: run.key for seed, run in runs.items()}}
    keys = {seed: keys[seed] for seed in seeds if seed in keys}
    return replace(
        new,
        settings={**new.settings, "seeds": seeds},
        seeds=seeds,
        keys=keys,
        runs=[runs[seed] for seed in seeds if seed in runs],
    )


def draw(kept: Path = KEPT, reports: Path = REPORTS) -> None:
    """Write the report of each scale from its file, and print the pages."""
    for file in sorted(kept.glob("*.json.gz")):
        place = reports / file.name.removesuffix(".json.gz")
        with replacing(place) as partial:
            reproduction.build(evidence.load(file), here_and_now()).write(partial)
        print(place / "report.html")


class Kept:
    """The finished runs of one scale."""

    def __init__(self, scale: str) -> None:
        self.cells = evidence.load(KEPT / f"{scale}.json.gz").cells

    def of(self, part: str, experiment: str, label: str) -> dict[str, Cell]:
        place = part, experiment, label
        return {cell.method: cell for cell in self.cells if (cell.part, cell.experiment, cell.label) == place}


def finished(cells: dict[str, Cell], methods: Sequence[str]) -> dict[str, MethodResult]:
    """Return the results of the methods that have finished seeds."""
    there = [cell for method in methods if (cell := cells.get(method)) and cell.runs]
    return {cell.method: summarize(cell.runs, cell.hyperparameters, cell.settings) for cell in there}


def cited(cell: Cell) -> Entry:
    """Return the paper's number in percent, or nothing if the paper has none."""
    number = paper.of_cell(cell)
    return f"{number.value:.1f}" if number else ""


def reached(result: MethodResult | None, *points: str) -> str:
    """Return a result's accuracies in percent, the second in parentheses; nothing without a result."""
    before, *after = (f"{100 * result.final[point].mean:.1f}" for point in points) if result else [""]
    return before + "".join(f" ({each})" for each in after)


def column(pairs: Mapping[str, tuple[MethodResult, MethodResult]], point: str) -> dict[str, Entry]:
    """Return the corrected differences of pairs of results in points, or nothing between a method and itself."""
    known = {row: (one, other) for row, (one, other) in pairs.items() if one.method != other.method}
    found = corrected({row: paired_difference(one, other, point) for row, (one, other) in known.items()})
    return {row: found.get(row, "") for row in pairs}


def gains(results: dict[str, MethodResult], point: str) -> dict[str, Entry]:
    return column({method: (own, results[LOCAL]) for method, own in results.items()}, point)


def table_1(kept: Kept) -> str:
    """Return the accuracies of Table 1, after adaptation in parentheses, next to the paper's numbers."""
    titles = [name.replace(" with", ",").removesuffix(" classes") for name in COLUMNS]
    lines: list[list[Entry]] = [["method", *(each for name in titles for each in (name, "paper"))]]
    columns = [(cells := kept.of(TABLE_1, *place), finished(cells, METHODS)) for place in COLUMNS.values()]
    for method in METHODS:
        pairs = [(reached(own.get(method), *BOTH), cited(cells[method])) for cells, own in columns]
        lines.append([named(method), *(each for pair in pairs for each in pair)])
    return drawn(lines)


def after_local(kept: Kept) -> str:
    """Return the accuracies of Table 1 after local training, and their differences to local-only training."""
    heads = [each for name in COLUMNS for each in (name.replace(" with", ","), "minus local")]
    lines: list[list[Entry]] = [["method", *heads]]
    found = [finished(kept.of(TABLE_1, *place), METHODS) for place in COLUMNS.values()]
    gained = [gains(each, AFTER_LOCAL) for each in found]
    for method in METHODS:
        pairs = [(reached(own[method], AFTER_LOCAL), each[method]) for own, each in zip(found, gained, strict=True)]
        lines.append([named(method), *(each for pair in pairs for each in pair)])
    return drawn(lines)


def losses(kept: Kept) -> str:
    """Return what methods reached after transfer, and after local training, with several losses and on equal seeds."""
    lines: list[list[Entry]] = [["method", "loss", *(name.replace(" with", ",") for name in COLUMNS)]]
    for method in DISTILLED:
        columns = []
        for place in COLUMNS.values():
            cells = {shown: kept.of(part, *place).get(method) for part, shown in LOSSES.items()}
            columns.append(on_common_seeds(cells, kept.of(TABLE_1, *place).get(LOCAL)))
        for shown in (*LOSSES.values(), ""):
            found = [each.get(shown) for each in columns]
            if any(found):
                entries = [reached(own, AFTER_TRANSFER, AFTER_LOCAL) for own in found]
                seeds = [f", {plural(len(own.runs), 'seed')}" if own else "" for own in found]
                lines.append([named(method if shown else LOCAL), shown, *map(str.__add__, entries, seeds)])
    return drawn(lines)


def on_common_seeds(cells: Mapping[str, Cell | None], local: Cell | None) -> dict[str, MethodResult]:
    """Return a method's results by loss, and under "" local-only training's, on the seeds that all of them have.

    Nothing is returned unless two losses or more have finished runs.
    """
    there = {loss: cell for loss, cell in {**cells, "": local}.items() if cell and cell.runs}
    seeds = set.intersection(*({run.seed for run in cell.runs} for cell in there.values())) if there else set()
    if len(there.keys() - {""}) < 2 or not seeds:
        return {}
    kept = {loss: [run for run in cell.runs if run.seed in seeds] for loss, cell in there.items()}
    return {loss: summarize(runs, there[loss].hyperparameters, there[loss].settings) for loss, runs in kept.items()}


def differences(cells: dict[str, Cell], others: Sequence[tuple[str, str]]) -> str:
    """Return each method's differences to local-only training, and those of `others` to the method."""
    after = {AFTER_TRANSFER: "", AFTER: ", adapted"}
    heads = [f"{named(method)} minus this{after[point]}" for method, point in others]
    lines: list[list[Entry]] = [["method", *(f"minus local-only{after[point]}" for point in BOTH), *heads]]
    results = finished(cells, METHODS)
    shown = [gains(results, point) for point in BOTH]
    shown += [column({method: (results[name], own) for method, own in results.items()}, at) for name, at in others]
    return drawn([*lines, *([named(method), *(each[method] for each in shown)] for method in results)])


def settings(kept: Kept, rows: dict[str, tuple[str, str]]) -> str:
    """Return KT-pFL's accuracy and differences to local-only training in settings of Tables 3 to 6."""
    head = "setting", "accuracy (%)", "minus local-only", "minus local-only, adapted", "the paper (%)"
    cells = {shown: kept.of(part, "hetero_fashion_mnist", label) for shown, (part, label) in rows.items()}
    found = {shown: finished(own, (PAPERS, LOCAL)) for shown, own in cells.items()}
    gained = [column({shown: (own[PAPERS], own[LOCAL]) for shown, own in found.items()}, point) for point in BOTH]
    lines: list[list[Entry]] = [[*head]]
    for shown, own in found.items():
        after = accuracy(own[PAPERS].final[AFTER_TRANSFER])
        lines.append([shown, after, *(each[shown] for each in gained), cited(cells[shown][PAPERS])])
    return drawn(lines)


def table_2(cells: dict[str, Cell]) -> str:
    """Return a column of Table 2, the best method first. Methods with fewer seeds, or without any, are at the end."""
    head = "method", "accuracy (%)", "minus local-only", "adapted (%)", "adapted, minus local-only", "the paper (%)"
    results = finished(cells, [*cells])
    gained = {point: gains(results, point) for point in BOTH}
    lines: list[list[Entry]] = [[*head]]
    for own in sorted(results.values(), key=lambda own: (-len(own.seeds), -own.final[AFTER_TRANSFER].mean)):
        shown = [each for point in BOTH for each in (accuracy(own.final[point]), gained[point][own.method])]
        lines.append([named(own.method), *shown, cited(cells[own.method])])
    unfinished = [method for method in cells if method not in results]
    return drawn([*lines, *([named(name), "no finished run", "", "", "", cited(cells[name])] for name in unfinished)])


def pages() -> Iterator[tuple[Path, Tables]]:
    light, two_cores = Kept("light"), Kept("two_cores")
    first, *rest = COLUMNS
    above = {name: f"Differences on **{name},**" for name in COLUMNS}
    yield (
        PAGE,
        {
            "## Table 1: several architectures": table_1(light),
            "### At the released code's point of evaluation": after_local(light),
            "### With other losses of distillation": losses(light),
            "## Tables 3 to 6: settings of KT-pFL": settings(two_cores, SETTINGS),
            "### At the scale light": settings(light, LIGHT_SETTINGS),
        },
    )
    yield (
        DIFFERENCES,
        {
            above[first]: differences(light.of(TABLE_1, *COLUMNS[first]), MINUS_JOINT),
            **{above[name]: differences(light.of(TABLE_1, *COLUMNS[name]), MINUS_KT_PFL) for name in rest},
        },
    )
    yield PAGE_2, {text: table_2(two_cores.of("table2", *column)) for text, column in TABLE_2.items()}


def page() -> None:
    for file, tables in pages():
        write(file, tables)


COMMANDS: dict[str, Callable[..., Any]] = {"keep": keep, "page": page, "draw": draw}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
