"""KT-pFL (joint) against its parts and its baselines, paired by seed, in nine settings and three additional ones.

    python benchmarks/ablation.py run                       runs missing from build/ablation.jsonl, several hours
    python benchmarks/ablation.py run digits baselines 0,1  one dataset, one set of rows, two seeds
    python benchmarks/ablation.py run mnist unseen          a dataset that was not used in the method's design
    python benchmarks/ablation.py run "" longer             all labels and more epochs: does more work give the gain?
    python benchmarks/ablation.py table                     writes benchmarks/results/<date>-ablation.md

Fashion-MNIST and CIFAR-10, with MNIST and CIFAR-100 as public images, are read from npz files in the folder
KTPFL_REAL_DATA, or in data/01_raw without this variable. The script can be stopped at any time: finished runs are not
repeated.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from statistics import fmean
from typing import Any

import measure
import torch
from measure import RAW, ROOT

from ktpfl_pipeline.analysis.statistics import Difference, difference
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import METHODS, create
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint
from ktpfl_pipeline.runs.run import check_theorem

KEPT = ROOT / "build" / "ablation.jsonl"
SEEDS, ROUNDS, CLIENTS, LAST = (0, 1, 2, 3, 4), 10, 20, 5
PARTITIONS: dict[str, Any] = {
    "two labels": "two_labels",
    "all labels": "all_labels",
    "Dirichlet 0.5": {"scheme": "dirichlet", "alpha": 0.5},
}
MANY: dict[str, Any] = {
    "private": {"samples": 2000},
    "training": {"epochs": 4, "batch_size": 32},
    "distillation": {"epochs": 2, "learning_rate": 0.01},
}
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"source": "digits"},
    "fashion_mnist": {
        "source": f"npz:{RAW}/fashion_mnist.npz",
        "public": {"source": f"npz:{RAW}/mnist.npz", "batch": 250},
        **MANY,
    },
    "cifar10": {
        "source": f"npz:{RAW}/cifar10.npz",
        "public": {"source": f"npz:{RAW}/cifar100.npz", "batch": 250},
        "image": {"channels": 3, "size": 32},
        **MANY,
    },
}
UNSEEN: dict[str, dict[str, Any]] = {
    "mnist": {
        "source": f"npz:{RAW}/mnist.npz",
        "public": {"source": f"npz:{RAW}/fashion_mnist.npz", "batch": 250},
        **MANY,
    },
}
"""MNIST, which was only a public set while the method was designed. Private and public set of Fashion-MNIST swapped."""
LONGER: dict[str, dict[str, Any]] = {
    "digits, E = 10": {**DATASETS["digits"], "training": {"epochs": 10}},
    "fashion_mnist, E = 20": {**DATASETS["fashion_mnist"], "training": {"epochs": 20, "batch_size": 32}},
}
"""More local epochs with all labels. On digits, local-only training does not gain by further epochs."""


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


BASELINES: dict[str, Any] = {
    name: name for name in ("local", "local_matched", "sim_pfl", "fedmd", "pfeddf", "kt_pfl", "kt_pfl_joint")
}
PARTS: dict[str, Any] = {
    "joint, plain average": PlainAverage(),
    "joint, the trained model only": KTpFLJoint(start_share=0.0, memory=0.0),
    "joint, mean of probabilities": MeanOfProbabilities(),
}
WORK: dict[str, Any] = {name: name for name in ("local", "local_matched", "kt_pfl", "kt_pfl_joint")}
ROWS = {"baselines": BASELINES, "parts": PARTS, "longer": WORK, "unseen": BASELINES}
CONFIGURED: dict[str, dict[str, Any]] = {  # as in conf/base
    **measure.CONFIGURED,
    "pfeddf": {"epochs": 10},
}


def made(row: str) -> Method[Any]:
    """Return the method of a row."""
    kind = {**BASELINES, **PARTS}[row]
    return create(kind, CONFIGURED.get(kind)) if kind in METHODS else kind


def finished(dataset: str, partition: str, row: str, seed: int) -> dict[str, Any]:
    """Run one row, and return its record."""
    began = time.process_time()
    method, asked = made(row), {**DATASETS, **LONGER, **UNSEEN}[dataset]
    fed = replace(federation(**asked, clients=CLIENTS, partition=PARTITIONS[partition], seed=seed), rounds=ROUNDS)
    with closing(fed.executor):
        run = engine.run(method, fed, engine.Schedule(ROUNDS))
        after = method.personal(run.state, fed.by_id, fed)
        adapted = fed.evaluate(fed.fine_tune(after), "test")
        theorem = check_theorem(method, run, fed, 100) if row in ("kt_pfl", "kt_pfl_joint") else None
    last = [record.accuracy["after_transfer"] for record in run.history[-LAST:]]
    return {
        "dataset": dataset,
        "partition": partition,
        "row": row,
        "seed": seed,
        "accuracy": [fmean(values) for values in zip(*last, strict=True)],
        "adapted": [evaluation.accuracy for evaluation in adapted.values()],
        "theorem": theorem and {name: fmean(losses) for name, losses in theorem.test.items()},
        "seconds": time.process_time() - began,
    }


def runs() -> list[dict[str, Any]]:
    """Return the records of finished runs."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that identify a run."""
    return run["dataset"], run["partition"], run["row"], run["seed"]


def run(dataset: str = "", rows: str = "", seeds: str = "") -> None:
    """Run all missing runs, seed by seed, the baselines first."""
    torch.set_num_threads(1)
    KEPT.parent.mkdir(exist_ok=True)
    done = set(map(key, runs()))
    chosen = [int(seed) for seed in seeds.split(",")] if seeds else SEEDS
    for group in [rows] if rows else ROWS:
        for seed in chosen:
            for wanted in ((*setting, row, seed) for setting in settings(group) for row in ROWS[group]):
                if wanted in done or dataset not in ("", wanted[0]):
                    continue
                found = finished(*wanted)
                with KEPT.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                accuracy, seconds = 100 * fmean(found["accuracy"]), found["seconds"]
                print(*wanted, f"{accuracy:.1f}", f"{seconds:.0f} CPU s", flush=True)


def settings(group: str) -> list[tuple[str, str]]:
    """Return the datasets and partitions on which a set of rows is run."""
    if group == "longer":
        return [(name, "all labels") for name in LONGER]
    return [(name, partition) for name in (UNSEEN if group == "unseen" else DATASETS) for partition in PARTITIONS]


def table() -> None:
    """Write the tables of all finished runs."""
    found = {key(one): one for one in runs()}
    seconds = sum(one["seconds"] for one in found.values()) / 3600
    lines = [
        f"# KT-pFL (joint), its parts and its baselines, {measure.today()}",
        "",
        f"{CLIENTS} clients (LeNet, two CNNs, an MLP), {ROUNDS} rounds, {len(found)} runs, {seconds:.1f} CPU hours;",
        f"{measure.hardware()}. Digits: 1,257 private images, E = 3 in batches of 16, R = 2 on 150 public digits a",
        "round. Fashion-MNIST and CIFAR-10: 2,000 private images, E = 4 in batches of 32, R = 2 on 250 images of MNIST",
        "and of CIFAR-100; MNIST the same, on images of Fashion-MNIST. A quarter of each client's images is for tests,",
        "a tenth of the rest for validation.",
        "",
        "*Accuracy*, percent: mean over clients of the last five rounds, ± standard deviation over seeds. Differences",
        "are paired by seed, with 95 % t intervals, bold where these exclude zero. *Adapted*: after E more epochs of",
        "local training, after the last round. *Harmed*: the share of clients below themselves with local-only.",
        "",
    ]
    for dataset, partition in [*settings("baselines"), *settings("longer"), *settings("unseen")]:
        lines += list(_setting(found, dataset, partition))
    measure.write("ablation", lines)


def _setting(found: dict[tuple[Any, ...], dict[str, Any]], dataset: str, partition: str) -> Iterator[str]:
    by_row = {
        row: {seed: found[dataset, partition, row, seed] for seed in SEEDS if (dataset, partition, row, seed) in found}
        for row in (*BASELINES, *PARTS)
    }
    if not by_row["local"]:
        return
    yield from [f"## {dataset}, {partition}", ""]
    yield "| method | seeds | accuracy | to local | to kt_pfl | to sim_pfl | adapted | harmed |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row, seeds in by_row.items():
        if seeds:
            means = [100 * fmean(one["accuracy"]) for one in seeds.values()]
            std = f" ± {torch.tensor(means).std():.1f}" if len(means) > 1 else ""
            others = [
                _against(seeds, by_row[other]) if row != other else "" for other in ("local", "kt_pfl", "sim_pfl")
            ]
            adapted = 100 * fmean(fmean(one["adapted"]) for one in seeds.values())
            harmed = f"{_harmed(seeds, by_row['local']):.0%}" if row != "local" else ""
            cells = [row, str(len(seeds)), f"{fmean(means):.1f}{std}", *others, f"{adapted:.1f}", harmed]
            yield f"| {' | '.join(cells)} |"
    yield ""
    for row in ("kt_pfl", "kt_pfl_joint"):
        checks = [one["theorem"] for one in by_row[row].values() if one["theorem"]]
        if checks:
            losses = ", ".join(f"{name} {fmean(check[name] for check in checks):.3f}" for name in checks[0])
            yield f"Theorem 1 for `{row}`, mean loss in nats of mixtures on the half that none was fitted to: {losses}."
            yield ""


def _against(one: dict[int, Any], other: dict[int, Any]) -> str:
    """Return the paired difference of two rows in points, bold if its interval excludes zero."""
    both = [100 * (fmean(one[seed]["accuracy"]) - fmean(other[seed]["accuracy"])) for seed in one if seed in other]
    found: Difference | None = difference(both)
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.mean:+.1f}"
    text = f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def _harmed(one: dict[int, Any], local: dict[int, Any]) -> float:
    pairs = [
        pair
        for seed in one
        if seed in local
        for pair in zip(one[seed]["accuracy"], local[seed]["accuracy"], strict=True)
    ]
    return fmean(float(mine < alone) for mine, alone in pairs) if pairs else 0.0


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
