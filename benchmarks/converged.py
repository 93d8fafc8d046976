"""Methods on converged clients: twelve clients with Fashion-MNIST or CIFAR-10, paired by seed.

    python benchmarks/converged.py run                      the missing runs, several hours
    python benchmarks/converged.py run kt_pfl_joint 0,1,2   one method, three seeds, both datasets
    python benchmarks/converged.py keep                     adds the rows to benchmarks/results/converged.csv
    python benchmarks/converged.py table                    writes the tables of the kept rows into
                                                            docs/results/converged.md, and those of each
                                                            setting into benchmarks/results/converged.md
    python benchmarks/converged.py figure                   draws docs/images/converged.png from the kept rows

The datasets are read from npz files in the folder KTPFL_REAL_DATA, or in data/01_raw without this variable. New rows go
to build/converged.csv. The script can be stopped at any time: runs in this file or in the kept rows are not repeated.
`LABEL=name` before the command writes a method's rows under another name, to compare the code of two commits.
"""

import csv
import os
import sys
import time
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from measure import CONFIGURED, RAW, ROOT
from page_tables import named, write

from ktpfl_pipeline.analysis.statistics import Difference, difference, holm
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import ADAPTED
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint
from ktpfl_pipeline.reports.figures.base import grid_of_panels, legend_above, plain, styled
from ktpfl_pipeline.reports.numbers import interval, signed
from ktpfl_pipeline.reports.paper import names
from ktpfl_pipeline.reports.paper.tables import SEVERAL
from ktpfl_pipeline.reports.render.markdown import entry
from ktpfl_pipeline.reports.style import INK, PAPER, VERDICTS

FOUND, KEPT = ROOT / "build" / "converged.csv", ROOT / "benchmarks" / "results" / "converged.csv"
PAGE, FIGURE = ROOT / "docs" / "results" / "converged.md", ROOT / "docs" / "images" / "converged.png"
EVERY = ROOT / "benchmarks" / "results" / "converged.md"
"""The page with one table per setting; the page of the documentation has the differences only."""
ROUNDS, EPOCHS, CLIENTS, SAMPLES, LAST = 20, 10, 12, 750, 5
TEST_SHARE = 0.9
"""The share of test samples. A client trains and validates on 75 samples and has 675 test samples, to reduce noise."""
DATA = {"Fashion-MNIST": ("fashion_mnist", "mnist"), "CIFAR-10": ("cifar10", "cifar100")}
"""The private and the public dataset by name."""
PARTITIONS = {"all classes": "all_labels", "two classes": "two_labels"}
SETTINGS = {
    "private": {"samples": CLIENTS * SAMPLES},
    "training": {"epochs": EPOCHS, "batch_size": 32, "learning_rate": 0.05},
    "distillation": {"epochs": 2, "batch_size": 64, "learning_rate": 0.01},
}


class PlainAverage(KTpFLJoint):
    """KT-pFL (joint) whose clients start from the average of their architecture, independent of their labels."""

    title = "KT-pFL (joint), plain average"

    def weights(self, common: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Return the data shares as every client's weights."""
        return shares.expand_as(common)


class MeanOfProbabilities(KTpFLJoint):
    """KT-pFL (joint) with the teachers of KT-pFL, which are arithmetic means of soft predictions."""

    title = "KT-pFL (joint), mean of probabilities"
    teachers = KTpFL.teachers


PARTS: dict[str, tuple[str, Method[Any]]] = {
    "joint_average": ("joint, plain average", PlainAverage()),
    "joint_mean": ("joint, mean of probabilities", MeanOfProbabilities()),
    "joint_trained": ("joint, trained model only", KTpFLJoint(start_share=0.0, memory=0.0)),
}
"""Row titles and methods: KT-pFL (joint) without the overlap of labels, the geometric mean, or the running mean."""
METHODS = (
    *("local", "kt_pfl", "kt_pfl_joint", "pfeddf", "fedmd", "sim_pfl", "local_matched", "topk_pfl"),
    *("feddf", "feddf_soft", "pfeddf_soft", *PARTS),
)
SEEDS = {0: METHODS, 1: METHODS, 2: METHODS, 3: METHODS[:6], 4: METHODS[:6]}
"""The methods that are run with each seed."""
COMPARED = [name for name in METHODS if name not in PARTS]
AXIS = (-13.0, 7.5)
"""The horizontal axis of the figure in percentage points."""
SUBJECT, LOCAL, PAPERS = "kt_pfl_joint", "local", "kt_pfl"
Rows = list[dict[str, str]]


def federation_of(data: str, partition: str, seed: int) -> Federation:
    """Return the clients with a dataset and a partition."""
    private, public = DATA[data]
    return federation(
        f"npz:{RAW}/{private}.npz",
        CLIENTS,
        partition={"scheme": PARTITIONS[partition], "test_share": TEST_SHARE},
        seed=seed,
        public={"source": f"npz:{RAW}/{public}.npz", "batch": 300},
        **SETTINGS,  # type: ignore[arg-type]
    )


def finished(data: str, partition: str, name: str, seed: int) -> Rows:
    """Run a method, and return one row per client: test accuracy in the last rounds, before and after adaptation."""
    method = PARTS[name][1] if name in PARTS else create(name, CONFIGURED.get(name))
    fed = federation_of(data, partition, seed)
    schedule = engine.Schedule(ROUNDS, evaluate_every=ROUNDS, evaluate_last=LAST, adapt_epochs=(EPOCHS,))
    with closing(fed.executor):
        history = engine.run(method, replace(fed, rounds=ROUNDS), schedule).history[-LAST:]
    return [
        {
            "data": data,
            "partition": partition,
            "method": os.environ.get("LABEL", name),
            "seed": str(seed),
            "client": str(client.id),
            "architecture": client.architecture,
            **{f"round {record.round}": f"{record.accuracy['after_transfer'][row]:.4f}" for record in history},
            "adapted": f"{fmean(record.accuracy[f'{ADAPTED}{EPOCHS}'][row] for record in history):.4f}",
        }
        for row, client in enumerate(fed.clients)
    ]


def read(file: Path) -> Rows:
    """Return the rows of a file, or no rows if the file is missing."""
    if not file.exists():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def run_of(row: dict[str, str]) -> tuple[str, ...]:
    """Return the values that identify a row's run."""
    return row["data"], row["partition"], row["method"], row["seed"]


def run(names: str = "", seeds: str = "") -> None:
    """Run all missing runs, seed by seed."""
    torch.set_num_threads(1)
    FOUND.parent.mkdir(exist_ok=True)
    for seed in map(int, seeds.split(",")) if seeds else SEEDS:
        for name in names.split(",") if names else SEEDS.get(seed, METHODS):
            for data, partition in product(DATA, PARTITIONS):
                wanted = data, partition, os.environ.get("LABEL", name), str(seed)
                if wanted in {run_of(row) for row in (*read(FOUND), *read(KEPT))}:
                    continue
                began = time.process_time()
                rows = finished(data, partition, name, seed)
                new = not FOUND.exists()
                with FOUND.open("a", newline="") as opened:
                    writer = csv.DictWriter(opened, list(rows[0]))
                    writer.writerows([dict(zip(rows[0], rows[0], strict=True)), *rows] if new else rows)
                as_is, adapted = by_seed(rows, "as is")[seed], by_seed(rows, "adapted")[seed]
                seconds = time.process_time() - began
                print(*wanted, f"{as_is:.1f}, adapted {adapted:.1f}, {seconds:.0f} CPU s", flush=True)


def by_seed(rows: Rows, column: str) -> dict[int, float]:
    """Return the mean over clients by seed, in percent; ``as is`` is the mean of the last rounds."""
    found: dict[int, list[float]] = {}
    for row in rows:
        last = [float(value) for name, value in row.items() if name.startswith("round ")]
        found.setdefault(int(row["seed"]), []).append(100 * (fmean(last) if column == "as is" else float(row[column])))
    return {seed: fmean(values) for seed, values in sorted(found.items())}


Pairs = dict[str, tuple[dict[int, float], dict[int, float]]]
"""Two accuracies in percent by seed, by method."""


def differences(pairs: Pairs) -> dict[str, Difference | None]:
    """Return the paired differences of a column by method, corrected for all of them."""
    found = {
        name: difference([(one[seed] - other[seed]) / 100 for seed in one if seed in other])
        for name, (one, other) in pairs.items()
    }
    return holm(found)


def compared(pairs: Pairs) -> dict[str, str]:
    """Return the differences of a column in points, by method. Significant differences are bold."""
    shown = {name: interval(each) for name, each in differences(pairs).items()}
    return {name: "" if each is None else entry(each) for name, each in shown.items()}


def title(name: str) -> str:
    """Return a method's title, with a mark if its models after transfer come from local training."""
    return f"{PARTS[name][0]} ‡" if name in PARTS else named(name)


def comparison(rows: Rows) -> str:
    """Return the table of one dataset and partition; methods with other seeds are not ranked against each other."""
    here = {name: own for name in METHODS if (own := [row for row in rows if row["method"] == name])}
    lines = [
        "| method | seeds | accuracy (%) | minus local-only | joint minus this | adapted (%) | "
        "joint minus this, adapted |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    as_is_of, adapted_of = (
        {name: by_seed(own, column) for name, own in here.items()} for column in ("as is", "adapted")
    )
    gained = compared({name: (own, as_is_of[LOCAL]) for name, own in as_is_of.items() if name != LOCAL})
    behind, behind_adapted = (
        compared({name: (values[SUBJECT], own) for name, own in values.items() if name != SUBJECT})
        for values in (as_is_of, adapted_of)
    )
    for name, as_is in as_is_of.items():
        adapted = adapted_of[name]
        cells = [
            title(name),
            str(len(as_is)),
            f"{fmean(as_is.values()):.1f}" + (f" ± {stdev(as_is.values()):.1f}" if len(as_is) > 1 else ""),
            gained.get(name, ""),
            behind.get(name, ""),
            f"{fmean(adapted.values()):.1f}",
            behind_adapted.get(name, ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def gains(rows: Rows) -> str:
    """Return each method's difference to local-only training in every setting."""
    shown = parts(rows)
    columns = [
        compared({name: (own, values[LOCAL]) for name, own in values.items() if name != LOCAL})
        for own in shown.values()
        if (values := {name: by_seed([row for row in own if row["method"] == name], "as is") for name in METHODS})
    ]
    lines = [f"| minus local-only | {' | '.join(shown)} |", "| --- |" + " --- |" * len(shown)]
    for name in METHODS:
        if name != LOCAL:
            lines.append(f"| {title(name)} | {' | '.join(column[name] for column in columns)} |")
    return "\n".join(lines)


def beside_the_paper(rows: Rows, column: str) -> str:
    """Return KT-pFL's difference to each baseline of the paper, with the paper's difference in Table 1 in brackets.

    `column` is ``as is`` or ``adapted``. The paper's difference is shown only with ``as is``.
    """
    shown = parts(rows)
    lines = [f"| KT-pFL minus | {' | '.join(shown)} |", "| --- |" + " --- |" * len(shown)]
    cited = names()
    baselines, cells = [name for name in METHODS if name != PAPERS and name in cited], dict[str, list[str]]()
    for own in shown.values():
        values = {name: by_seed([row for row in own if row["method"] == name], column) for name in (PAPERS, *baselines)}
        leads = compared({name: (values[PAPERS], values[name]) for name in baselines})
        place = DATA[own[0]["data"]][0], PARTITIONS[own[0]["partition"]]
        for name in baselines:
            theirs = SEVERAL[*place, cited[PAPERS]].value - SEVERAL[*place, cited[name]].value
            beside = f" ({signed(theirs / 100)})" if column == "as is" else ""
            cells.setdefault(name, []).append(f"{leads[name] or 'not run'}{beside}")
    lines += [f"| {title(name)} | {' | '.join(own)} |" for name, own in cells.items()]
    return "\n".join(lines)


def convergence(rows: Rows) -> str:
    """Return the table of local-only training in the last rounds."""
    rounds = [name for name in rows[0] if name.startswith("round ")]
    lines = ["| data | " + " | ".join(name[6:] for name in rounds) + " |", "| --- |" + " --- |" * len(rounds)]
    for heading, own in parts(rows).items():
        local = [row for row in own if row["method"] == LOCAL]
        means = [f"{100 * fmean(float(row[name]) for row in local):.1f}" for name in rounds]
        lines.append(f"| {heading} | {' | '.join(means)} |")
    return "\n".join(lines)


def parts(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each dataset and partition, by the heading of their table."""
    found = {
        f"{data}, {partition}": [row for row in rows if (row["data"], row["partition"]) == (data, partition)]
        for data, partition in product(DATA, PARTITIONS)
    }
    return {heading: own for heading, own in found.items() if own}


def tables(rows: Rows) -> dict[Path, dict[str, str]]:
    """Return every table of both pages by the heading above it."""
    found = {
        PAGE: {
            "Gains over local-only training": gains(rows),
            "KT-pFL and the paper's baselines": beside_the_paper(rows, "as is"),
            "KT-pFL and the paper's baselines, adapted": beside_the_paper(rows, "adapted"),
        },
        EVERY: {
            **{heading: comparison(own) for heading, own in parts(rows).items()},
            "Convergence": convergence(rows),
        },
    }
    return {page: {f"## {heading}\n": table for heading, table in headed.items()} for page, headed in found.items()}


@styled
def drawn(rows: Rows) -> Figure:
    """Draw each method's difference to local-only training with its interval, one panel per dataset and partition."""
    shown = parts(rows)
    figure, panels = grid_of_panels(list(shown), across=2, height=2.4, wrap=60, above=0.3, sharex=True)
    for axes, own in zip(panels, shown.values(), strict=True):
        values = {name: by_seed([row for row in own if row["method"] == name], "as is") for name in METHODS}
        found = differences({name: (values[name], values[LOCAL]) for name in METHODS if name != LOCAL})
        panel(axes, {name: each for name, each in found.items() if each and name in COMPARED})
    for axes in panels[-2:]:
        axes.set_xlabel("percentage points", fontsize=8)
    words = {1: "significantly above local-only training", 0: "not significant", -1: "significantly below"}
    handles = {text: Line2D([], [], color=VERDICTS[sign][1], linewidth=2) for sign, text in words.items()}
    legend_above(figure, handles, len(handles))
    return figure


def panel(axes: Axes, found: dict[str, Difference]) -> None:
    """Draw the differences of one dataset and partition, the largest at the top.

    A difference beyond the axis is a number at its edge, and an interval beyond it ends with a triangle.
    """
    ranked = sorted(found, key=lambda name: -found[name].mean)
    axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
    for row, name in enumerate(ranked):
        mean, (low, high) = 100 * found[name].mean, (100 * end for end in found[name].ends or (found[name].mean,) * 2)
        color = VERDICTS[found[name].sign][1]
        if mean < AXIS[0]:
            axes.text(AXIS[0], row, f"◂ {signed(mean / 100)}", color=color, va="center")
            continue
        axes.plot([max(low, AXIS[0]), min(high, AXIS[1])], [row, row], color=color, linewidth=2, zorder=2)
        for beyond, edge, mark in ((low < AXIS[0], AXIS[0], "<"), (high > AXIS[1], AXIS[1], ">")):
            if beyond:
                axes.plot([edge], [row], mark, color=color, markersize=4)
        filled = color if found[name].sign else PAPER
        axes.plot([mean], [row], "o", color=color, markerfacecolor=filled, markersize=5, zorder=3)
    axes.set(xlim=AXIS, ylim=(len(ranked) - 0.4, -0.6), xticks=range(-10, 6, 5))
    axes.set_yticks(range(len(ranked)), map(title, ranked))
    axes.tick_params(axis="y", labelcolor=INK)
    for label, name in zip(axes.get_yticklabels(), ranked, strict=True):
        label.set_fontweight("bold" if name in (SUBJECT, PAPERS) else "normal")
    plain(axes, grid="x")


def draw() -> None:
    """Save the figure of the kept rows for the page."""
    drawn(read(KEPT)).savefig(FIGURE, dpi=200)


def table() -> None:
    """Write the tables of the kept rows into the pages. Each replaces the table below its heading."""
    for page, headed in tables(read(KEPT)).items():
        write(page, headed)


def keep() -> None:
    """Add the new rows to the rows in the repository. New rows replace rows of the same run."""
    new = read(FOUND)
    found = {run_of(row) for row in new}
    rows = [*(row for row in read(KEPT) if run_of(row) not in found), *new]
    with KEPT.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    {"run": run, "table": table, "figure": draw, "keep": keep}[sys.argv[1]](*sys.argv[2:])
