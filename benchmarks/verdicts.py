"""The grid of README.md and docs/results.md: does exchanging knowledge help? It is drawn from the kept runs.

    python benchmarks/verdicts.py      writes the grid into both pages, in seconds and without images

A cell is a method's gain over local-only training after equal adaptation, a point of evaluation that all methods share.
A mark says whether it is significant after Holm's correction for all methods that were run in the setting.
"""

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NamedTuple

import converged
import pages
import paper_tables
from measure import ROOT
from studies import LOCAL, drawn, read, write

from ktpfl_pipeline.analysis.comparison import paired_difference
from ktpfl_pipeline.analysis.statistics import Difference, holm
from ktpfl_pipeline.methods import find, title
from ktpfl_pipeline.reports.numbers import Entry, signed

PAGES = ROOT / "README.md", ROOT / "docs" / "results.md"
ABOVE = "<!-- python benchmarks/verdicts.py -->"
"""The text above the grid on both pages."""
JOINT = "kt_pfl_joint"
KT_PFL = ("kt_pfl", "kt_pfl_params")
MARKS = {1: "▲", 0: "○", -1: "▼"}


class Setting(NamedTuple):
    """One row: gains by method in 0..1, corrected, and what the reader must know to judge them."""

    where: str
    clients: str
    samples: str  # training samples per client
    local: float  # accuracy of local-only training in percent
    gains: dict[str, Difference | None]


def settings() -> Iterator[Setting]:
    """Yield the settings: converged clients, the paper's size, people, and one architecture."""
    for where, runs in converged.parts(read(converged.STUDY.kept)).items():
        found = runs.minus(LOCAL, converged.AFTER)
        gains = {name: each for name, each in found.items() if name in converged.COMPARED}
        yield Setting(where, "12", "75", 100 * fmean(runs.means(LOCAL, converged.AFTER).values()), gains)
    light, two_cores = paper_tables.Kept("light"), paper_tables.Kept("two_cores")
    for where, column in paper_tables.COLUMNS.items():
        samples = "270" if "CIFAR" in where else "450"
        yield of_paper(light, paper_tables.TABLE_1, column, where.replace(" with", ","), "20", samples)
    people = pages.runs_of(read(pages.kept("har")))
    adapted = pages.last_adapted(people)
    local = 100 * fmean(people.means(LOCAL, adapted).values())
    yield Setting("sensors of people", "20", "140–205", local, people.minus(LOCAL, adapted))
    for experiment, label in paper_tables.TABLE_2.values():
        where = f"{'CIFAR-10' if 'cifar' in experiment else 'Fashion-MNIST'}, one architecture"
        yield of_paper(two_cores, "table2", (experiment, label), where, label.removesuffix(" clients"), "75")


def of_paper(
    kept: paper_tables.Kept, part: str, column: tuple[str, str], where: str, clients: str, samples: str
) -> Setting:
    cells = kept.of(part, *column)
    found, point = paper_tables.finished(cells, [*cells]), paper_tables.AFTER
    local = found.pop(LOCAL)
    gains = holm({name: paired_difference(own, local, point) for name, own in found.items()})
    return Setting(where, clients, samples, 100 * local.final[point].mean, gains)


def cell(gains: dict[str, Difference | None], wanted: Callable[[str], bool], named: bool = True) -> str:
    """Return the highest gain of the methods that are wanted, with its mark; nothing without such a method."""
    known = {name: each for name, each in gains.items() if wanted(name) and each and each.ends}
    if named:  # means over fewer seeds are not ranked with the others
        most = max(each.seeds for name, each in gains.items() if name in KT_PFL and each)
        known = {name: each for name, each in known.items() if each.seeds == most}
    if not known:
        return ""
    best = max(known, key=lambda name: known[name].mean)
    return f"{f'{title(best)} ' if named else ''}{MARKS[known[best].sign]}\N{NO-BREAK SPACE}{signed(known[best].mean)}"


def exchanged(name: str) -> str:
    """Return what a method's clients exchange: ``models``, also beside predictions, ``predictions``, or nothing."""
    kinds = find(name).kind.exchanges
    return "models" if "parameters" in kinds else "predictions" if kinds else ""


def grid() -> str:
    lines: list[list[Entry]] = [
        [
            *("setting", "clients", "samples each", "local-only (%)", "KT-pFL", "best other, predictions only"),
            *("best, with models", "KT-pFL (joint), ours", "extra local work"),
        ]
    ]
    own = {*KT_PFL, JOINT}
    for each in settings():
        lines.append(
            [
                *(each.where, each.clients, each.samples, f"{each.local:.1f}"),
                cell(each.gains, lambda name: name in KT_PFL, named=False),
                cell(each.gains, lambda name: name not in own and exchanged(name) == "predictions"),
                cell(each.gains, lambda name: name not in own and exchanged(name) == "models"),
                cell(each.gains, lambda name: name == JOINT, named=False),
                cell(each.gains, lambda name: name.startswith("local"), named=False),
            ]
        )
    return drawn(lines)


if __name__ == "__main__":
    for page in PAGES:
        write(page, {ABOVE: grid()})
