"""Methods on converged clients: twelve clients with Fashion-MNIST or CIFAR-10, paired by seed.

    python benchmarks/converged.py run      the missing runs, several hours
    python benchmarks/converged.py page     the tables and the figure of docs/results/converged.md, and the tables of
                                            benchmarks/results/converged.md

The datasets are read from npz files in the folder KTPFL_REAL_DATA, or in data/01_raw without this variable. `run` may
be stopped at any time, and several processes may run at once: finished runs are in benchmarks/results/converged.csv.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from measure import RAW, RESULTS, ROOT
from studies import LOCAL, Rows, Runs, Study, Tables, configured, drawn, markdown, named, read, trained, write

from ktpfl_pipeline.analysis.statistics import Difference
from ktpfl_pipeline.core.errors import DivergedError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import ADAPTED, AFTER_TRANSFER, Traffic
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods.fedapen import FedAPEN, FedAPENState
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint
from ktpfl_pipeline.reports.figures.base import grid_of_panels, legend_above, plain, styled
from ktpfl_pipeline.reports.numbers import Entry, interval, percent, signed
from ktpfl_pipeline.reports.paper import names
from ktpfl_pipeline.reports.paper.tables import SEVERAL
from ktpfl_pipeline.reports.render.markdown import entry
from ktpfl_pipeline.reports.style import INK, PAPER, VERDICTS

PAGE, FIGURE = ROOT / "docs" / "results" / "converged.md", ROOT / "docs" / "images" / "converged.png"
EVERY = RESULTS / "converged.md"
"""The page with one table per setting; the page of the documentation has the differences only."""
ROUNDS, EPOCHS, CLIENTS, SAMPLES, LAST = 20, 10, 12, 750, 5
TEST_SHARE = 0.9
"""The share of test samples. A client trains and validates on 75 samples and has 675 test samples, to reduce noise."""
DATA = {"Fashion-MNIST": ("fashion_mnist", "mnist"), "CIFAR-10": ("cifar10", "cifar100")}
"""The private and the public dataset by name."""
PARTITIONS = {"all classes": "all_labels", "two classes": "two_labels"}
SETTINGS: dict[str, Any] = {
    "private": {"samples": CLIENTS * SAMPLES},
    "training": {"epochs": EPOCHS, "batch_size": 32, "learning_rate": 0.05},
    "distillation": {"epochs": 2, "batch_size": 64, "learning_rate": 0.01},
    "compute": {"memory_format": "contiguous"},  # as in the kept runs
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


@dataclass(frozen=True, eq=False)
class PairsState(FedAPENState):
    """The state of `Pairs`: also each client's second model."""

    seconds: Models


class Pairs(FedAPEN):
    """FedAPEN without exchange: its second model stays at the client, and their weights are learned in the same way."""

    title = "FedAPEN, nothing exchanged"
    exchanges = frozenset()

    def init(self, fed: Federation) -> PairsState:
        state = super().init(fed)
        return PairsState(state.models, state.common, state.shares, {})

    def received(self, state: FedAPENState, clients: Iterable[int]) -> Models:
        assert isinstance(state, PairsState)
        return {n: state.seconds.get(n, state.common) for n in clients}

    def round(self, state: FedAPENState, cohort: list[int], t: int, fed: Federation) -> tuple[PairsState, RoundReport]:
        assert isinstance(state, PairsState)
        trained, seconds = self.train(state, cohort, t, fed)
        shares = {**state.shares, **self.learned_shares(state, trained, seconds, t, fed)}
        after = PairsState({**state.models, **trained}, state.common, shares, {**state.seconds, **seconds})
        return after, RoundReport(self.ensembles(state, trained, seconds, fed), dict.fromkeys(cohort, Traffic()))


PARTS: dict[str, tuple[str, Method[Any]]] = {
    "joint_average": ("joint, plain average", PlainAverage()),
    "joint_mean": ("joint, mean of probabilities", MeanOfProbabilities()),
    "joint_trained": ("joint, trained model only", KTpFLJoint(start_share=0.0, memory=0.0)),
    "pairs": (Pairs.title, Pairs()),
}
"""Row titles and methods: KT-pFL (joint) without the overlap of labels, the geometric mean, or the running mean, and
FedAPEN without exchange."""
METHODS = (
    *("local", "kt_pfl", "kt_pfl_joint", "pfeddf", "fedmd", "sim_pfl", "local_matched", "topk_pfl"),
    *("feddf", "feddf_soft", "pfeddf_soft", "fccl", "fccl_plus", "rhfl", "fedhenn", "fedre", "fedssa", "fedapen"),
    *PARTS,
)
FIVE = (*METHODS[:6], "fedapen", "pairs")
"""Methods with five seeds; the others have three."""
SEEDS = {0: METHODS, 1: METHODS, 2: METHODS, 3: FIVE, 4: FIVE}
"""The methods that are run with each seed if clients have several architectures."""
ALIKE = (
    *("local", "kt_pfl_params", "fedavg", "fedprox", "scaffold", "fedpac", "feddbe", "fedcp", "gpfl"),
    "local_matched",
)
"""The methods that are run with three seeds if all clients have one architecture."""
SHOWN = {"several": METHODS, "one": ALIKE}
NETWORKS = {"several": ("lenet", "cnn", "cnn_bn", "mlp"), "one": ("lenet",)}
"""The architectures of the clients, assigned in turn."""
COMPARED = [name for name in METHODS if name not in PARTS]
LAST_ROUNDS = [f"round {t}" for t in range(ROUNDS - LAST + 1, ROUNDS + 1)]
AS_IS, AFTER = AFTER_TRANSFER, f"{ADAPTED}{EPOCHS}"
AXIS = (-13.0, 13.0)
"""The horizontal axis of the figure in percentage points."""
SUBJECT, PAPERS = "kt_pfl_joint", "kt_pfl"


class Key(NamedTuple):
    """What identifies a run."""

    data: str
    partition: str
    method: str
    seed: str
    networks: str = "several"


def federation_of(data: str, partition: str, seed: int, networks: str = "several") -> Federation:
    private, public = DATA[data]
    return federation(
        f"npz:{RAW}/{private}.npz",
        CLIENTS,
        NETWORKS[networks],
        partition={"scheme": PARTITIONS[partition], "test_share": TEST_SHARE},
        seed=seed,
        public={"source": f"npz:{RAW}/{public}.npz", "batch": 300},
        **SETTINGS,
    )


def finish(key: Key, rows: Rows) -> Rows:
    """Run a method, and return one line per client: test accuracy in the last rounds, before and after adaptation.

    A run that diverged is one line without a client.
    """
    method = PARTS[key.method][1] if key.method in PARTS else configured(key.method)
    fed = federation_of(key.data, key.partition, int(key.seed), key.networks)
    try:
        history = trained(method, fed, ROUNDS, LAST, [EPOCHS]).history[-LAST:]
    except DivergedError:
        return [key._asdict()]
    return [
        {
            **key._asdict(),
            "client": str(client.id),
            "architecture": client.architecture,
            **{f"round {record.round}": f"{record.accuracy[AS_IS][place]:.4f}" for record in history},
            "adapted": f"{fmean(record.accuracy[AFTER][place] for record in history):.4f}",
        }
        for place, client in enumerate(fed.clients)
    ]


def done(rows: Rows) -> set[Key]:
    return {Key(*(row[name] for name in Key._fields)) for row in rows}


STUDY = Study(
    RESULTS / "converged.csv", [*Key._fields, "client", "architecture", *LAST_ROUNDS, "adapted"], done, finish
)


def run() -> None:
    STUDY.run(shown_runs())


def shown_runs() -> list[Key]:
    several = [(seed, name, "several") for seed, names in SEEDS.items() for name in names]
    alike = [(seed, name, "one") for seed in range(3) for name in ALIKE]
    cells = list(product(DATA, PARTITIONS))
    return [Key(*cell, name, str(seed), networks) for seed, name, networks in several + alike for cell in cells]


def parts(rows: Rows, networks: str = "several") -> dict[str, Runs]:
    """Return the accuracies of each dataset and partition, by the heading of their table, in the methods' order.

    A method that diverged with a seed has none.
    """
    names, lost = SHOWN[networks], diverged(rows)
    found: dict[str, list[tuple[str, str, int, float]]] = {
        f"{data}, {partition}": [] for data, partition in product(DATA, PARTITIONS)
    }
    own_rows = [row for row in rows if row["networks"] == networks and row["method"] in names]
    for row in sorted(own_rows, key=lambda row: names.index(row["method"])):
        heading = f"{row['data']}, {row['partition']}"
        if (networks, heading, row["method"]) not in lost:
            as_is = fmean(float(row[name]) for name in LAST_ROUNDS)
            found[heading] += [(row["method"], AS_IS, int(row["seed"]), as_is)]
            found[heading] += [(row["method"], AFTER, int(row["seed"]), float(row["adapted"]))]
    return {heading: Runs(own) for heading, own in found.items() if own}


def diverged(rows: Rows) -> Counter[tuple[str, str, str]]:
    """Return with how many seeds a method diverged, by networks, heading and method."""
    return Counter(
        (row["networks"], f"{row['data']}, {row['partition']}", row["method"]) for row in rows if not row["client"]
    )


def title(name: str) -> str:
    """Return a method's title, with a mark if its models after transfer come from local training."""
    return f"{PARTS[name][0]}{' ‡' * PARTS[name][1].trained_last}" if name in PARTS else named(name)


def shown(found: Mapping[str, Difference | None], name: str, sign: int = 1) -> str:
    """Return a method's difference in points, bold if it is significant; nothing without one. `sign` -1 negates it."""
    each = found.get(name)
    return entry(interval(each if sign > 0 else -each)) if each else ""


def comparison(runs: Runs) -> str:
    """Return the table of one dataset and partition; methods with other seeds are not ranked against each other."""
    lines = [["method", "seeds", "accuracy (%)", "minus local-only", "joint minus this", "adapted (%)"]]
    lines[0].append("joint minus this, adapted")
    gained, behind, behind_adapted = runs.minus(LOCAL), runs.minus(SUBJECT), runs.minus(SUBJECT, AFTER)
    for name in runs.clients:
        accuracy: list[Entry] = [runs.accuracy(name), percent(fmean(runs.means(name, AFTER).values()))]
        as_is, adapted = map(entry, accuracy)
        first = [title(name), str(len(runs.means(name))), as_is, shown(gained, name), shown(behind, name, -1)]
        lines.append([*first, adapted, shown(behind_adapted, name, -1)])
    return markdown(lines)


def gains(rows: Rows, networks: str = "several", point: str = AS_IS) -> str:
    """Return each method's difference to local-only training in every setting, or with how many seeds it diverged."""
    by_part, lost = parts(rows, networks), diverged(rows)
    columns = {heading: runs.minus(LOCAL, point) for heading, runs in by_part.items()}
    lines = [["minus local-only", *by_part]]
    for name in SHOWN[networks]:
        seeds = {heading: lost[networks, heading, name] for heading in by_part}
        cells = (f"diverged ({seeds[at]} of 3)" if seeds[at] else shown(columns[at], name) for at in by_part)
        lines += [[title(name), *cells]] if name != LOCAL else []
    return markdown(lines)


def beside_the_paper(by_part: dict[str, Runs], point: str) -> str:
    """Return KT-pFL's difference to each baseline of the paper.

    With the point `AS_IS`, the paper's difference in Table 1 is in brackets.
    """
    cited = names()
    baselines = [name for name in METHODS if name != PAPERS and name in cited]
    rows = {name: [title(name)] for name in baselines}
    for (data, partition), runs in zip(product(DATA, PARTITIONS), by_part.values(), strict=True):
        leads, place = runs.minus(PAPERS, point, baselines), (DATA[data][0], PARTITIONS[partition])
        for name in baselines:
            theirs = SEVERAL[*place, cited[PAPERS]].value - SEVERAL[*place, cited[name]].value
            beside = f" ({signed(theirs / 100)})" if point == AS_IS else ""
            rows[name].append(f"{shown(leads, name, -1) or 'not run'}{beside}")
    return markdown([["KT-pFL minus", *by_part], *rows.values()])


def convergence(rows: Rows) -> str:
    """Return the table of local-only training in the last rounds."""
    lines = [["data", *(name.removeprefix("round ") for name in LAST_ROUNDS)]]
    for cell in product(DATA, PARTITIONS):
        wanted = *cell, LOCAL, "several"
        local = [row for row in rows if (row["data"], row["partition"], row["method"], row["networks"]) == wanted]
        means = [f"{100 * fmean(float(row[name]) for row in local):.1f}" for name in LAST_ROUNDS]
        lines.append([", ".join(cell), *means])
    return drawn(lines)


def tables(rows: Rows) -> dict[Path, Tables]:
    by_part = parts(rows)
    found = {
        PAGE: {
            "Gains over local-only training": gains(rows),
            "KT-pFL and the paper's baselines": beside_the_paper(by_part, AS_IS),
            "KT-pFL and the paper's baselines, adapted": beside_the_paper(by_part, AFTER),
            "One architecture": gains(rows, "one"),
        },
        EVERY: {
            **{heading: comparison(runs) for heading, runs in by_part.items()},
            "One architecture, adapted": gains(rows, "one", AFTER),
            "Convergence": convergence(rows),
        },
    }
    return {page: {f"## {heading}\n": table for heading, table in headed.items()} for page, headed in found.items()}


@styled
def picture(rows: Rows) -> Figure:
    """Draw each method's difference to local-only training with its interval, one panel per dataset and partition."""
    by_part = parts(rows)
    figure, panels = grid_of_panels(list(by_part), across=2, height=3.6, wrap=60, above=0.3, sharex=True)
    for axes, runs in zip(panels, by_part.values(), strict=True):
        panel(axes, {name: each for name, each in runs.minus(LOCAL).items() if each and name in COMPARED})
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
    axes.set(xlim=AXIS, ylim=(len(ranked) - 0.4, -0.6), xticks=range(-10, 11, 5))
    axes.set_yticks(range(len(ranked)), map(title, ranked))
    axes.tick_params(axis="y", labelcolor=INK)
    for label, name in zip(axes.get_yticklabels(), ranked, strict=True):
        label.set_fontweight("bold" if name in (SUBJECT, PAPERS) else "normal")
    plain(axes, grid="x")


def page() -> None:
    rows = read(STUDY.kept)
    for file, headed in tables(rows).items():
        write(file, headed)
    picture(rows).savefig(FIGURE, dpi=200)


if __name__ == "__main__":
    {"run": run, "page": page}[sys.argv[1]](*sys.argv[2:])
