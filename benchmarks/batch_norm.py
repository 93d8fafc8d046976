"""Three policies for BatchNorm's statistics on public samples, by method, architecture and dataset, paired by seed.

    python benchmarks/batch_norm.py run            runs missing from build/batch_norm.jsonl, seed by seed
    python benchmarks/batch_norm.py run deep 1/2   every second run of one scale; run 2/2 in another process
    python benchmarks/batch_norm.py table          writes benchmarks/results/<date>-batchnorm.md

Fashion-MNIST and CIFAR-10, with MNIST and CIFAR-100 as public images, are read from npz files in the folder
KTPFL_REAL_DATA, or in data/01_raw without this variable. The script can be stopped at any time: finished runs are not
repeated.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any

import measure
import torch
from measure import CONFIGURED, RAW, ROOT

from ktpfl_pipeline.analysis.statistics import difference
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import create, title
from ktpfl_pipeline.reports.numbers import interval
from ktpfl_pipeline.reports.render.markdown import entry
from ktpfl_pipeline.reports.style import architecture_title

KEPT = ROOT / "build" / "batch_norm.jsonl"
SEEDS, LAST = (0, 1, 2), 2
POLICIES = ("frozen", "train", "domain_specific")
METHODS = ("fedmd", "kt_pfl", "sim_pfl", "feddf")
NORMALIZED = ("cnn_bn", "resnet18", "shufflenet_v2")
SCALES: dict[str, dict[str, Any]] = {
    "light": {
        "clients": 8,
        "architectures": ["lenet", "cnn", "cnn_bn", "mlp"],
        "private": {"samples": 900},
        "image": {"size": 16},
        "public": {"batch": 100},
        "training": {"epochs": 4, "batch_size": 16, "learning_rate": 0.05},
    },
    "deep": {
        "clients": 5,
        "architectures": ["cnn", "mlp", "cnn_bn", "shufflenet_v2", "resnet18"],
        "private": {"samples": 450},
        "image": {"size": 10},  # ResNet-18 costs a hundred times as much as the other models
        "public": {"batch": 40},
        "training": {"epochs": 3, "batch_size": 16, "learning_rate": 0.05},
    },
}
ROUNDS = {"light": 8, "deep": 4}
COMMON: dict[str, Any] = {
    "partition": {"scheme": "k_labels", "labels_per_client": 3, "test_share": 0.4},
    "distillation": {"epochs": 1, "batch_size": 32, "learning_rate": 0.01},
}
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"private": {"source": "digits"}, "public": {"source": "open_part"}, "image": {"channels": 1}},
    "fashion_mnist": {
        "private": {"source": f"npz:{RAW}/fashion_mnist.npz"},
        "public": {"source": f"npz:{RAW}/mnist.npz"},
        "image": {"channels": 1},
    },
    "cifar10": {
        "private": {"source": f"npz:{RAW}/cifar10.npz"},
        "public": {"source": f"npz:{RAW}/cifar100.npz"},
        "image": {"channels": 3},
    },
}
TITLES = {
    "digits": "Digits",
    "fashion_mnist": "Fashion-MNIST, public MNIST",
    "cifar10": "CIFAR-10, public CIFAR-100",
}
Key = tuple[str, str, str, str, int]
"""Scale, dataset, method, policy and seed. Local-only uses no public samples, so its policy is empty."""


def wanted() -> list[Key]:
    """Return all runs in their order. The runs on which the decision depends come first."""
    rows = [("local", ""), *product(METHODS, POLICIES)]
    first, second = [row for row in rows if row[0] in ("local", "fedmd", "kt_pfl")], rows[7:]
    plan = [(scale, some) for some in (first, second) for scale in SCALES]
    return [
        (scale, dataset, *row, seed)
        for scale, some in plan
        for dataset in ("fashion_mnist", "cifar10", "digits")
        for seed in SEEDS
        for row in some
    ]


def merged(settings: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the changes `more`. Groups are merged, and all other values are replaced."""
    groups = {name: {**settings.get(name, {}), **value} for name, value in more.items() if isinstance(value, dict)}
    return {**settings, **more, **groups}


def experiment(scale: str, dataset: str) -> dict[str, Any]:
    """Return the settings of a federation."""
    return merged(merged(COMMON, SCALES[scale]), DATASETS[dataset])


def finished(scale: str, dataset: str, method: str, policy: str, seed: int) -> dict[str, Any]:
    """Run one method, and return its record."""
    began, rounds = time.process_time(), ROUNDS[scale]
    settings = experiment(scale, dataset)
    if policy:
        settings = merged(settings, {"distillation": {"batch_norm": policy}})
    fed = replace(federation(settings["private"]["source"], **settings, seed=seed), rounds=rounds)
    with closing(fed.executor):
        run = engine.run(create(method, CONFIGURED.get(method)), fed, engine.Schedule(rounds))
    history = [record.accuracy["after_transfer"] for record in run.history]
    return {
        "key": [scale, dataset, method, policy, seed],
        "architectures": [client.architecture for client in fed.clients],
        "accuracy": [fmean(values) for values in zip(*history[-LAST:], strict=True)],
        "by_round": [fmean(values) for values in history],
        "seconds": time.process_time() - began,
    }


def runs() -> dict[Key, dict[str, Any]]:
    """Return the records of finished runs."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return {tuple(found["key"]): found for found in map(json.loads, lines)}


def run(scale: str = "", part: str = "1/1") -> None:
    """Run the missing runs of one scale or of all scales. `part` is ``1/2`` for the first of two processes."""
    torch.set_num_threads(1)
    KEPT.parent.mkdir(exist_ok=True)
    place, parts = map(int, part.split("/"))
    for key in [key for key in wanted() if scale in ("", key[0])][place - 1 :: parts]:
        if key not in runs():
            found = finished(*key)
            with KEPT.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(*key, f"{100 * fmean(found['accuracy']):.1f}", f"{found['seconds']:.0f} CPU s", flush=True)


def differences(
    found: dict[Key, dict[str, Any]], scale: str, dataset: str, row: tuple[str, str], architectures: Sequence[str]
) -> dict[int, float]:
    """Return the difference in mean accuracy to local-only by seed, over clients with these architectures, 0 to 1."""
    values = {}
    for seed in SEEDS:
        ours, local = found.get((scale, dataset, *row, seed)), found.get((scale, dataset, "local", "", seed))
        if ours and local:
            both = zip(ours["architectures"], ours["accuracy"], local["accuracy"], strict=True)
            values[seed] = fmean(one - other for name, one, other in both if name in architectures)
    return values


def groups(scale: str) -> dict[str, Sequence[str]]:
    """Return the columns of a table, with their architectures."""
    names = SCALES[scale]["architectures"]
    other = [name for name in names if name not in NORMALIZED]
    with_norm = [name for name in names if name in NORMALIZED]
    single = {architecture_title(name): [name] for name in names}
    return {**single, "without BatchNorm": other, "with BatchNorm": with_norm, "all": names}


def tables(found: dict[Key, dict[str, Any]], scale: str) -> Iterator[str]:
    """Yield one table per dataset, and one table of all datasets together."""
    columns = groups(scale)
    for dataset in (*DATASETS, ""):
        yield from [f"### {TITLES.get(dataset, 'All three datasets')}", ""]
        local = [one for key, one in found.items() if key[0] == scale and key[1] == dataset and key[2] == "local"]
        if dataset:
            first, last = (fmean(one["by_round"][place] for one in local) for place in (0, -1))
            yield f"Local-only: {100 * first:.1f} % after round 1, {100 * last:.1f} % after round {ROUNDS[scale]}."
        else:
            yield "Each seed's difference is the mean over the datasets."
        yield from ["", f"| method | policy | seeds | {' | '.join(columns)} |", f"|{' --- |' * (3 + len(columns))}"]
        for row in product(METHODS, POLICIES):
            cells: list[str] = []
            for names in columns.values():
                values = [differences(found, scale, each, row, names) for each in ([dataset] if dataset else DATASETS)]
                by_seed = [
                    fmean(each[seed] for each in values) for seed in SEEDS if all(seed in each for each in values)
                ]
                cells.append(entry(interval(difference(by_seed))))
            yield f"| {title(row[0])} | `{row[1]}` | {len(by_seed)} | {' | '.join(cells)} |"
        yield ""


def table() -> None:
    """Write the tables of all finished runs."""
    found = runs()
    seconds = sum(one["seconds"] for one in found.values()) / 3600
    lines = [
        f"# BatchNorm on public samples, {measure.today()}",
        "",
        f"{len(found)} of {len(wanted())} runs, {seconds:.1f} CPU hours; {measure.hardware()}. Every client has three",
        "labels and tests on 40 % of its images. R = 1 in batches of 32, η₂ = 0.01; η₁ = 0.05 in batches of 16. The",
        "public images of digits are a part of the digits.",
        "",
        "Cells: mean test accuracy after transfer over the last two rounds minus local-only's, in points, paired by",
        "seed, with a 95 % t interval that is not corrected for the number of cells; bold where it excludes zero.",
        "",
    ]
    for scale, given in SCALES.items():
        names = ", ".join(map(architecture_title, given["architectures"]))
        lines += [
            f"## {scale.capitalize()} models",
            "",
            f"{given['clients']} clients ({names}, dealt out in turn), {given['private']['samples']} private images of",
            f"{given['image']['size']} pixels a side, {given['public']['batch']} public images a round,",
            f"E = {given['training']['epochs']}, {ROUNDS[scale]} rounds, seeds {', '.join(map(str, SEEDS))}.",
            "",
            *tables(found, scale),
        ]
    measure.write("batchnorm", lines)


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]](*sys.argv[2:])
