"""The tables of docs/results/paper.md and paper_table_2.md, from the kept runs of the paper's tables.

    python benchmarks/paper_tables.py      writes the tables into the pages, in seconds and without images

benchmarks/results/paper_tables.md has the differences between the methods of Table 1.

`paper_evidence.py` keeps the runs. Differences are paired by seed, and corrected for all rows of a column.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from measure import RESULTS, ROOT
from page_tables import Tables, drawn, named, write
from paper_evidence import KEPT

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.comparison import paired_difference
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_LOCAL, AFTER_TRANSFER
from ktpfl_pipeline.reports import paper
from ktpfl_pipeline.reports.numbers import Entry, accuracy, corrected

PAGE, PAGE_2 = (ROOT / "docs" / "results" / name for name in ("paper.md", "paper_table_2.md"))
DIFFERENCES = RESULTS / "paper_tables.md"
AFTER, LOCAL, PAPERS, JOINT = f"{ADAPTED}10", "local", "kt_pfl", "kt_pfl_joint"
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
LIGHT_SETTINGS = {
    "E = 20, R = 1, ρ = 2, 3,000 samples": ("table3", "R = 1"),
    "ρ = 0.1": ("table4", "ρ = 0.1"),
}
"""The rows of Tables 3 to 6 at the scale light: part and label."""
TABLE_2 = {
    "## 20 clients\n\n**Fashion-MNIST,**": ("homo_fashion_mnist", "20 clients"),
    "**CIFAR-10,** three seeds:": ("homo_cifar", "20 clients"),
    "has 25 test samples instead of 425.": ("homo_fashion_mnist", "100 clients"),
    "**CIFAR-10,** three seeds (Per-FedAvg: two)": ("homo_cifar", "100 clients"),
}
"""The tables of Table 2 by the text above them: experiment and label."""


class Kept:
    """The finished runs of one scale."""

    def __init__(self, scale: str) -> None:
        """Read the kept runs of a scale."""
        self.cells = evidence.load(ROOT / KEPT / f"{scale}.json.gz").cells

    def of(self, part: str, experiment: str, label: str) -> dict[str, Cell]:
        """Return the cells of a column, by method."""
        place = part, experiment, label
        return {cell.method: cell for cell in self.cells if (cell.part, cell.experiment, cell.label) == place}


def result(cell: Cell) -> MethodResult | None:
    """Return a cell's result over its finished seeds, or None without any."""
    return summarize(cell.runs, cell.hyperparameters, cell.settings) if cell.runs else None


def finished(cells: dict[str, Cell], methods: Sequence[str]) -> dict[str, MethodResult]:
    """Return the results of the methods that have finished seeds."""
    return {method: own for method in methods if (own := result(cells[method]))}


def cited(cell: Cell) -> Entry:
    """Return the paper's number in percent, or nothing if the paper has none."""
    number = paper.of_cell(cell)
    return f"{number.value:.1f}" if number else ""


def column(pairs: Mapping[str, tuple[MethodResult, MethodResult]], point: str) -> dict[str, Entry]:
    """Return the corrected differences of pairs of results in points, or nothing between a method and itself."""
    known = {row: (one, other) for row, (one, other) in pairs.items() if one.method != other.method}
    found = corrected({row: paired_difference(one, other, point) for row, (one, other) in known.items()})
    return {row: found.get(row, "") for row in pairs}


def table_1(kept: Kept) -> str:
    """Return the accuracies of Table 1, after adaptation in parentheses, next to the paper's numbers."""
    titles = [name.replace(" with", ",").removesuffix(" classes") for name in COLUMNS]
    lines: list[list[Entry]] = [["method", *(each for name in titles for each in (name, "paper"))]]
    columns = [kept.of(TABLE_1, *column) for column in COLUMNS.values()]
    for method in METHODS:
        line: list[Entry] = [named(method)]
        for cells in columns:
            own = result(cells[method])
            if own is None:
                line += ["", cited(cells[method])]
                continue
            before, after = (f"{100 * own.final[point].mean:.1f}" for point in BOTH)
            line += [f"{before} ({after})", cited(cells[method])]
        lines.append(line)
    return drawn(lines)


def after_local(kept: Kept) -> str:
    """Return the accuracies of Table 1 after local training, and their differences to local-only training."""
    lines: list[list[Entry]] = [
        ["method", *(each for name in COLUMNS for each in (name.replace(" with", ","), "minus local"))]
    ]
    found = [finished(kept.of(TABLE_1, *place), METHODS) for place in COLUMNS.values()]
    gains = [column({name: (own, each[LOCAL]) for name, own in each.items()}, AFTER_LOCAL) for each in found]
    for method in METHODS:
        line: list[Entry] = [named(method)]
        for results, gained in zip(found, gains, strict=True):
            line += [f"{100 * results[method].final[AFTER_LOCAL].mean:.1f}", gained[method]]
        lines.append(line)
    return drawn(lines)


def losses(kept: Kept) -> str:
    """Return the accuracies after transfer, and after local training, with each loss of distillation and seeds."""
    lines: list[list[Entry]] = [["method", "loss", *(name.replace(" with", ",") for name in COLUMNS)]]
    for method, (part, shown) in product(DISTILLED, LOSSES.items()):
        line: list[Entry] = [named(method), shown]
        for column in COLUMNS.values():
            cell = kept.of(part, *column).get(method)
            own = result(cell) if cell else None
            points = [f"{100 * own.final[point].mean:.1f}" for point in (AFTER_TRANSFER, AFTER_LOCAL)] if own else []
            line.append(f"{points[0]} ({points[1]}), {plural(len(own.runs), 'seed')}" if own else "")
        if any(line[2:]):
            lines.append(line)
    return drawn(lines)


def differences(cells: dict[str, Cell], others: Sequence[tuple[str, str]]) -> str:
    """Return each method's differences to local-only training, and those of `others` to the method."""
    after = {AFTER_TRANSFER: "", AFTER: ", adapted"}
    heads = [f"{named(method)} minus this{after[point]}" for method, point in others]
    lines: list[list[Entry]] = [["method", *(f"minus local-only{after[point]}" for point in BOTH), *heads]]
    results = finished(cells, METHODS)
    shown = [column({method: (own, results[LOCAL]) for method, own in results.items()}, point) for point in BOTH]
    shown += [column({method: (results[name], own) for method, own in results.items()}, at) for name, at in others]
    lines += [[named(method), *(each[method] for each in shown)] for method in results]
    return drawn(lines)


def settings(kept: Kept, rows: dict[str, tuple[str, str]]) -> str:
    """Return KT-pFL's accuracy and differences to local-only training in settings of Tables 3 to 6."""
    head = "setting", "accuracy (%)", "minus local-only", "minus local-only, adapted", "the paper (%)"
    lines: list[list[Entry]] = [[*head]]
    cells = {shown: kept.of(part, "hetero_fashion_mnist", label) for shown, (part, label) in rows.items()}
    found = {shown: finished(own, (PAPERS, LOCAL)) for shown, own in cells.items()}
    gains = [column({shown: (own[PAPERS], own[LOCAL]) for shown, own in found.items()}, point) for point in BOTH]
    for shown, own in found.items():
        reached = accuracy(own[PAPERS].final[AFTER_TRANSFER])
        lines.append([shown, reached, *(each[shown] for each in gains), cited(cells[shown][PAPERS])])
    return drawn(lines)


def table_2(cells: dict[str, Cell]) -> str:
    """Return a column of Table 2, the best method first. Methods with fewer seeds, or without any, are at the end."""
    head = "method", "accuracy (%)", "minus local-only", "adapted (%)", "adapted, minus local-only", "the paper (%)"
    results = finished(cells, [*cells])
    gains = {point: column({name: (own, results[LOCAL]) for name, own in results.items()}, point) for point in BOTH}
    lines: list[list[Entry]] = [[*head]]
    for own in sorted(results.values(), key=lambda own: (-len(own.seeds), -own.final[AFTER_TRANSFER].mean)):
        shown = [each for point in BOTH for each in (accuracy(own.final[point]), gains[point][own.method])]
        lines.append([named(own.method), *shown, cited(cells[own.method])])
    unfinished = [method for method in cells if method not in results]
    return drawn([*lines, *([named(name), "no finished run", "", "", "", cited(cells[name])] for name in unfinished)])


def pages() -> Iterator[tuple[Path, Tables]]:
    """Yield the pages with their tables."""
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


if __name__ == "__main__":
    for page, tables in pages():
        write(page, tables)
