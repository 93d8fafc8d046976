"""Measure how clients that upload false predictions change the accuracy of the others, over five seeds.

    python benchmarks/robustness.py                                            on digits (conf/quick)
    KTPFL_REAL_DATA=<folder> python benchmarks/robustness.py fashion_mnist     on Fashion-MNIST (conf/results)

Each command writes a table and a figure to benchmarks/results/<date>-robustness-<dataset>.*, and continues a run that
was stopped. A client's accuracy is compared with its accuracy in the same run without malicious clients. The choice of
the malicious clients therefore has no influence.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import measure
import torch
from kedro.config import OmegaConfigLoader
from matplotlib.figure import Figure
from measure import RAW, ROOT

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.matrix import trust
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.statistics import difference, mean_over_clients
from ktpfl_pipeline.analysis.study import Study
from ktpfl_pipeline.config import parsing, schema, studies
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.pipelines.sweep import run_sweep
from ktpfl_pipeline.reports import style
from ktpfl_pipeline.reports.figures.base import WIDTH, styled
from ktpfl_pipeline.reports.numbers import Entry, interval, percent, weight
from ktpfl_pipeline.reports.render.markdown import entry
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

SEEDS, METHODS = [0, 1, 2, 3, 4], ["kt_pfl", "sim_pfl", "fedmd", "local"]
KINDS = {"random": "Noise", "flipped": "Classes in reverse", "scaled": "Logits times −10"}
SHARES = [0.1, 0.2]
NPZ = {"private": {"source": "npz:fashion_mnist.npz"}, "public": {"source": "npz:mnist.npz"}}
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"title": "Digits", "env": "quick", "changes": {}},
    "fashion_mnist": {"title": "Fashion-MNIST", "env": "results", "changes": NPZ},
}
Runs = dict[tuple[str, float, str], list[FinishedRun]]
"""The runs of a kind, a share and a method, by seed."""


def runs_of(dataset: str, raw_folder: Path) -> tuple[Runs, schema.Experiment]:
    """Return finished runs, and run what is missing. The runs without malicious clients are shared by all kinds."""
    name, asked = f"hetero_{dataset}", DATASETS[dataset]
    loader = OmegaConfigLoader(conf_source=str(ROOT / "conf"), env=asked["env"], **CONFIG_LOADER_ARGS)
    found: Runs = {}
    for kind in KINDS:
        changes = {**asked["changes"], "seeds": SEEDS, "theorem_samples": 0, "adversaries": {"kind": kind}}
        parameters = parsing.merged(loader["parameters"], {name: changes})
        values = SHARES if found else [0.0, *SHARES]
        sweep = studies.Sweep(experiment=name, parameter="adversaries.share", values=values, methods=METHODS)
        cells = parsing.sweep_cells("robustness", sweep, parameters)
        results = run_sweep(sweep, parameters, raw_folder, name="robustness")
        for cell in Study.from_dict(results).cells:
            found[kind, cell.value, cell.method] = list(cell.runs)
    first = next(iter(KINDS))
    for kind in KINDS:
        for method in METHODS:
            found[kind, 0.0, method] = found[first, 0.0, method]
    return found, cells[0].experiment


def benign(run: FinishedRun, adversaries: list[int]) -> float:
    """Return the mean final accuracy of the clients that are not among `adversaries`."""
    return mean_over_clients(run.final(AFTER_TRANSFER), adversaries)


def changes(found: Runs, kind: str, share: float, method: str) -> list[float]:
    """Return, by seed, how malicious clients change the mean accuracy of the benign clients."""
    pairs = zip(found[kind, share, method], found[kind, 0.0, method], strict=True)
    return [benign(run, run.adversaries) - benign(without, run.adversaries) for run, without in pairs]


def against_local(found: Runs, kind: str, share: float, method: str) -> list[float]:
    """Return, by seed, the benign clients' mean accuracy minus the same clients' accuracy with local-only training."""
    pairs = zip(found[kind, share, method], found[kind, share, "local"], strict=True)
    return [benign(run, run.adversaries) - benign(local, run.adversaries) for run, local in pairs]


def weights(found: Runs, kind: str, share: float, method: str) -> list[Entry]:
    """Return the final weight that benign clients give to a malicious one, in units of 1/N, with its interval.

    The second entry is the weight that the same rows give to the same clients in the run without malicious clients. A
    client with a large weight for itself gives every other client a small one.
    """
    pairs = list(zip(found[kind, share, method], found[kind, 0.0, method], strict=True))
    malicious = [run.trust for run, _ in pairs if run.trust is not None]
    benign_before = [
        trust(torch.tensor(without.coefficients), run.adversaries)
        for run, without in pairs
        if without.coefficients is not None and run.adversaries
    ]
    return [weight(difference(malicious)), weight(difference(benign_before))]


def rows(found: Runs) -> list[str]:
    """Return the table."""
    lines = [
        "| upload | share | method | accuracy (%) | change | minus local-only | weight, malicious | weight, benign |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for share, kind in [(0.0, next(iter(KINDS))), *((share, kind) for kind in KINDS for share in SHARES)]:
        for method in METHODS:
            accuracy = [benign(run, run.adversaries) for run in found[kind, share, method]]
            cells: list[Entry] = [
                KINDS[kind].lower() if share else "none false",
                f"{share:.0%}",
                title_of(method),
                percent(fmean(accuracy), stdev(accuracy)),
                interval(difference(changes(found, kind, share, method))) if share else None,
                None if method == "local" else interval(difference(against_local(found, kind, share, method))),
                *weights(found, kind, share, method),
            ]
            lines.append(f"| {' | '.join(map(entry, cells))} |")
    return lines


@styled
def figure(found: Runs) -> Figure:
    """Draw the change of accuracy by share of malicious clients, one panel per kind, with 95 % intervals."""
    drawn = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    panels = drawn.subplots(1, len(KINDS), sharey=True)
    for axes, (kind, title) in zip(panels, KINDS.items(), strict=True):
        axes.axhline(0, color=style.MUTED, linewidth=0.8)
        for place, method in enumerate(method for method in METHODS if method != "local"):
            look = style.look(method)
            spreads = [difference(changes(found, kind, share, method)) for share in (0.0, *SHARES)]
            means = [100 * spread.mean for spread in spreads if spread]
            ends = [
                [100 * (s.mean - s.low), 100 * (s.high - s.mean)]
                for s in spreads
                if s and s.low is not None and s.high is not None
            ]
            places = [100 * share + 0.35 * (place - 1) for share in (0.0, *SHARES)]
            axes.errorbar(
                places,
                means,
                yerr=list(zip(*ends, strict=True)),
                color=look.color,
                marker=look.marker,
                markersize=4.5,
                linewidth=1.6,
                elinewidth=1,
                label=title_of(method),
            )
        axes.set_title(title)
        axes.set_xticks([0, 10, 20])
        axes.set_xlabel("malicious clients (%)")
        axes.grid(axis="y")
    panels[0].set_ylabel("change for benign clients (points)")
    panels[0].legend(loc="lower left")
    return drawn


def main() -> None:
    """Run, and write the table and the figure."""
    dataset = sys.argv[1] if sys.argv[1:] else "digits"
    if dataset not in DATASETS:
        sys.exit(f"The dataset is {dataset!r}; give one of {', '.join(DATASETS)}.")
    torch.set_num_threads(1)
    places = {
        "enabled": False,
        "store": "none",
        "artifacts": "mlruns",
        "checkpoints": "data/06_models",
    }
    tracking.configure(places, ROOT)
    found, settings = runs_of(dataset, RAW)
    title, name = DATASETS[dataset]["title"], f"robustness-{dataset.replace('_', '-')}"
    figure(found).savefig(measure.RESULTS / f"{measure.today()}-{name}.png", dpi=150)
    lines = [
        f"# Clients that upload false predictions, {title}, {measure.today()}",
        "",
        f"{settings.clients} clients ({', '.join(settings.architectures)}), {settings.rounds} rounds, partition "
        f"{settings.partition.scheme}, seeds {', '.join(map(str, SEEDS))}; {measure.hardware()}.",
        "",
        "*Accuracy* is the mean of the benign clients over the last five rounds, ± standard deviation over seeds.",
        "*Change* compares it with the same clients' accuracy without malicious clients. Differences are in",
        "percentage points, with 95 % t intervals over seeds, bold where they exclude zero. *Weight, malicious* is",
        "the weight that benign rows of the final matrix give to a malicious client; 1 is an equal share. *Weight,",
        "benign* is the weight that the same rows give to the same clients without malicious clients.",
        "",
        *rows(found),
        "",
        f"![change by share of malicious clients]({measure.today()}-{name}.png)",
    ]
    measure.write(name, lines)


if __name__ == "__main__":
    main()
