"""The tables and the figure of the page on learned coefficients, from the kept runs of learned_coefficients.py.

    python benchmarks/learned_page.py       writes docs/results/learned_coefficients.md, its figure and the accuracies
                                            in benchmarks/results/learned_design.md; needs no images

The page shows the rows and seeds that are finished. A difference needs the same seeds of both rows.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import converged
from learned_coefficients import CELLS, GROUPS, OF_MATRIX, RATES, ROWS, STUDY, identity
from matplotlib.figure import Figure
from measure import RESULTS, ROOT
from studies import Rows, Tables, markdown, read, write

from ktpfl_pipeline.analysis.statistics import CONFIDENCE, Difference, equivalence, holm, paired, step_down
from ktpfl_pipeline.reports.figures.base import plain, single, styled
from ktpfl_pipeline.reports.numbers import interval, mean
from ktpfl_pipeline.reports.style import BLUE, INK, MUTED, RULE

PAGE, DESIGN = ROOT / "docs" / "results" / "learned_coefficients.md", RESULTS / "learned_design.md"
FIGURE = ROOT / "docs" / "images" / "learned_coefficients.png"
MARGIN = 0.005
"""Two rows are equivalent if their difference is shown to be within half a point."""
EQUIVALENT = " ≈"
"""The mark of a difference that is equivalent to zero, after Holm's correction for the table."""
POINTS = {"after_transfer": "after transfer", "after_local": "after local training", "adapted": "adapted"}
LEARNED = "learned"
OTHERS = [row for group in GROUPS[:2] for row in group if row != LEARNED]
"""The rows with which the learned matrix is compared."""
JOINT, EQUAL = ("joint", "feddf_running", "feddf", "matched", "local"), ("after_local", "adapted")
"""The rows that are compared with KT-pFL (joint), and the points at which all of them have just trained locally."""
Differences = Mapping[tuple[str, str, str], Difference]
"""Differences by dataset, partition and row."""
Values = Mapping[tuple[str, str, str, str], Mapping[int, float]]
"""Values by seed, by dataset, partition, row and column; accuracies are fractions of 1."""


def title(cell: tuple[str, str]) -> str:
    """Return the heading of a cell: ``CIFAR-10, two classes``."""
    data = next(name for name, files in converged.DATA.items() if files[0] == cell[0])
    return f"{data}, {next(name for name, scheme in converged.PARTITIONS.items() if scheme == cell[1])}"


TITLES = [title(cell) for cell in CELLS]


def values(lines: Rows) -> Values:
    """Return the results in the lines of all runs; runs that diverged have no values."""
    found: dict[tuple[str, str, str, str], dict[int, float]] = {}
    units = dict.fromkeys(POINTS, 0.01) | dict.fromkeys(("megabytes", "samples", *OF_MATRIX), 1.0)
    for line in lines:
        each = identity(line)
        for name, unit in units.items():
            if not each.design and line[name]:
                found.setdefault((*each[1:4], name), {})[each.seed] = unit * float(line[name])
    return found


def differences(results: Values, row: str, others: list[str], point: str) -> dict[tuple[str, str, str], Difference]:
    """Return the differences of a row to `others` in all cells, by dataset, partition and other row."""
    found = {
        (*cell, other): paired(results.get((*cell, row, point), {}), results.get((*cell, other, point), {}))
        for other, cell in product(others, CELLS)
    }
    return {name: each for name, each in found.items() if each}


def tested(found: Differences) -> tuple[dict[tuple[str, str, str], Difference | None], set[tuple[str, str, str]]]:
    """Return the differences with intervals, and those that are equivalent to zero, both corrected for all of them."""
    tests = {name: p for name, each in found.items() if (p := equivalence(each, MARGIN)) is not None}
    return holm(found), {name for name, p in step_down(tests).items() if p < 1 - CONFIDENCE}


def verdicts(found: Differences) -> dict[tuple[str, str, str], str]:
    """Return the differences with corrected intervals.

    Significant differences are bold. Differences that are equivalent to zero have a mark.
    """
    corrected, equivalent = tested(found)
    bold = {name: "**" * bool(each and each.sign) for name, each in corrected.items()}
    return {
        name: f"{bold[name]}{interval(each)}{bold[name]}{EQUIVALENT * (name in equivalent)}"
        for name, each in corrected.items()
    }


def summary(results: Values) -> str:
    """Return in how many settings and points the learned matrix is above, below or equivalent to each row."""
    counts: dict[str, Counter[str]] = {}
    for point in ("after_transfer", "adapted"):
        corrected, equivalent = tested(differences(results, LEARNED, OTHERS, point))
        for name, each in corrected.items():
            own, sign = counts.setdefault(name[2], Counter()), each.sign if each else 0
            own["above"] += sign > 0
            own["below"] += sign < 0
            own["equivalent"] += name in equivalent
            own["undecided"] += not sign and name not in equivalent
    names = ("above", "below", "equivalent", "undecided")
    table = [[ROWS[row].title, *(str(counts[row][name]) for name in names)] for row in OTHERS if row in counts]
    return markdown([["the learned matrix and", *names], *table])


def compared(results: Values, row: str, others: list[str], point: str) -> str:
    """Return the table of a row's differences to others, one column per cell; others without a run are left out."""
    shown = verdicts(differences(results, row, others, point))
    lines = [[f"{ROWS[row].title} minus", *TITLES]]
    there = [other for other in others if any((*cell, other, point) in results for cell in CELLS)]
    seeds = {(*cell, each): len(results.get((*cell, each, point), {})) for cell, each in product(CELLS, [row, *there])}

    def entry(cell: tuple[str, str], other: str) -> str:
        few = f" ({seeds[*cell, other]} seeds)" * (seeds[*cell, other] < seeds[*cell, row])
        return shown[*cell, other] + few if (*cell, other) in shown else ""

    lines += [[ROWS[other].title, *(entry(cell, other) for cell in CELLS)] for other in there]
    lines.append(["seeds", *(str(seeds[*cell, row]) for cell in CELLS)])
    return markdown(lines)


def by_cell(rows: Sequence[str], entries: Callable[[tuple[str, str], str], str]) -> str:
    """Return a table with one column per cell; rows without any entry are left out."""
    lines = [[ROWS[row].title, *(entries(cell, row) for cell in CELLS)] for row in rows]
    return markdown([["row", *TITLES], *(line for line in lines if any(line[1:]))])


def accuracies(lines: Rows, results: Values) -> str:
    """Return the table of accuracies after transfer and after adaptation, with the η₂ and T of each row."""
    ended = [line for line in lines if not identity(line).design]
    chosen = {identity(line)[1:4]: f"; {line['rate']}, {line['temperature']}" for line in ended}

    def entry(cell: tuple[str, str], row: str) -> str:
        own, adapted = (list(results.get((*cell, row, point), {}).values()) for point in ("after_transfer", "adapted"))
        tuned = chosen.get((*cell, row), "") if ROWS[row].tuned else ""
        return f"{mean(own)} ({100 * fmean(adapted):.1f}{tuned})" if own else ""

    return by_cell([LEARNED, *OTHERS], entry)


def matrices(results: Values) -> str:
    """Return the table of what the rows of each matrix are: own weight, overlap of labels, effective number."""

    def entry(cell: tuple[str, str], row: str) -> str:
        found = zip((results.get((*cell, row, name)) for name in OF_MATRIX), (2, 2, 1), strict=True)
        return ", ".join(f"{fmean(each.values()):.{digits}f}" for each, digits in found if each)

    return by_cell([LEARNED, *OTHERS], entry)


def joint(results: Values, cell: tuple[str, str], shown: Sequence[Mapping[tuple[str, str, str], str]]) -> str:
    """Return the table of KT-pFL (joint) in a cell: three points of evaluation, and differences at the equal ones."""
    table = [["method", "seeds", *POINTS.values(), *(f"joint minus this, {POINTS[point]}" for point in EQUAL)]]
    for row in JOINT:
        if own := results.get((*cell, row, "adapted")):
            points = [str(mean(list(results[*cell, row, point].values()))) for point in POINTS]
            against = [found.get((*cell, row), "") for found in shown]
            table.append([ROWS[row].title, str(len(own)), *points, *against])
    return markdown(table)


def costs(results: Values) -> str:
    """Return the table of what clients send and train per round with KT-pFL (joint) and others: MB and samples.

    Means over the cells, which hardly differ in both.
    """
    table = [["row", "MB sent and received", "samples backpropagated"]]
    for row in JOINT:
        found = [
            [x for cell in CELLS for x in results.get((*cell, row, name), {}).values()]
            for name in ("megabytes", "samples")
        ]
        if all(found):
            megabytes, samples = map(fmean, found)
            table.append([ROWS[row].title, f"{megabytes:.2f}", f"{samples:,.0f}"])
    return markdown(table)


def design(lines: Rows) -> str:
    """Return the table of the design: the accuracy on its images by η₂ at T = 1, and then at T = 10."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for line in lines:
        if (each := identity(line)).design:
            name = f"{each.rate:g}" if each.stage == "rate" else "T"
            found.setdefault(each[1:4], {})[name] = f"{float(line['after_transfer'] or 0):.1f}"

    def entry(cell: tuple[str, str], row: str) -> str:
        tried = [found.get((*cell, row), {}).get(name, "–") for name in (*(f"{rate:g}" for rate in RATES), "T")]
        return f"{', '.join(tried[:-1])}; {tried[-1]}"

    rows = [row for group in GROUPS for row in group if any((*cell, row) in found for cell in CELLS)]
    return by_cell(rows, entry)


def tables(lines: Rows) -> Iterator[tuple[str, str]]:
    results = values(lines)
    yield "## How often learning helps\n", summary(results)
    yield (
        "## Learned coefficients against others, after transfer\n",
        compared(results, LEARNED, OTHERS, "after_transfer"),
    )
    yield "## Learned coefficients against others, adapted\n", compared(results, LEARNED, OTHERS, "adapted")
    yield "## What the rows are\n", matrices(results)
    if any(row == "joint" for _, _, row, _ in results):
        yield "## KT-pFL (joint) on equal terms\n", compared(results, "joint", list(JOINT[1:]), "adapted")
        yield "FedDF's server distills instead", costs(results)


def evidence(lines: Rows) -> Iterator[tuple[str, str]]:
    results = values(lines)
    yield "## On the images for design\n", design(lines)
    yield "## On the images for results\n", accuracies(lines, results)
    shown = [verdicts(differences(results, "joint", list(JOINT[1:]), point)) for point in EQUAL]
    for cell in (cell for cell in CELLS if (*cell, "joint", "adapted") in results):
        yield f"**Joint: {title(cell)}**\n", joint(results, cell, shown)


def pages(lines: Rows) -> dict[Path, Tables]:
    return {PAGE: dict(tables(lines)), DESIGN: dict(evidence(lines))}


@styled
def picture(results: Values) -> Figure:
    """Draw the learned matrix minus the matrix at 1/N: each seed, the mean with its interval, and the margin."""
    figure, axes = single(2.6)
    axes.axvspan(-100 * MARGIN, 100 * MARGIN, color=RULE, alpha=0.5, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.9)
    names = []
    for place, (cell, point) in enumerate(product(CELLS, ("after_transfer", "adapted"))):
        ours, frozen = (results.get((*cell, row, point), {}) for row in (LEARNED, "frozen"))
        color = BLUE if point == "after_transfer" else MUTED
        names.append(f"{title(cell)}{', adapted' if point == 'adapted' else ''}")
        if (found := paired(ours, frozen)) is None:
            continue
        seeds = [100 * (ours[seed] - frozen[seed]) for seed in ours if seed in frozen]
        axes.plot(seeds, [place + 0.25] * len(seeds), "|", color=color, markersize=5)
        if found.ends:
            axes.plot([100 * end for end in found.ends], [place, place], color=color, linewidth=2)
        axes.plot([100 * found.mean], [place], "o", color=color, markersize=5)
    axes.set_yticks(range(len(names)), names)
    axes.set(ylim=(len(names) - 0.4, -0.6))
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xlabel("learned minus frozen at 1/N, percentage points", fontsize=8)
    plain(axes, grid="x")
    return figure


def main() -> None:
    lines = read(STUDY.kept)
    for page, found in pages(lines).items():
        write(page, found)
    picture(values(lines)).savefig(FIGURE, dpi=200)


if __name__ == "__main__":
    main()
