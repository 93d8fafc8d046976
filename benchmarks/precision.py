"""The effect of faster settings on results: accuracy over five seeds, and differences in weights after one round.

    KTPFL_REAL_DATA=<folder> python benchmarks/precision.py

writes benchmarks/results/<date>-precision.md. The runs are KT-pFL and local-only on digits (conf/quick) and, with the
folder of real images, on Fashion-MNIST (conf/results). The reference is float32, one client after another. All settings
have the same seeds, so differences are paired.
"""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

import measure
import torch
from kedro.config import OmegaConfigLoader
from measure import ROOT

from ktpfl_pipeline import methods
from ktpfl_pipeline.config import parsing, schema
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.weights import Models, vector_of
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

SEEDS, METHODS = [0, 1, 2, 3, 4], ("kt_pfl", "local")
SETTINGS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, channels last": {"memory_format": "channels_last"},
    **{f"{name}, channels last": {"dtype": name, "memory_format": "channels_last"} for name in measure.DTYPES[1:]},
}


def experiment(name: str, env: str, compute: dict[str, Any], changes: dict[str, Any]) -> schema.Experiment:
    """Return an experiment of conf/ with these settings of `compute` and other `changes`."""
    loader = OmegaConfigLoader(conf_source=str(ROOT / "conf"), env=env, **CONFIG_LOADER_ARGS)
    changed = {**changes, "seeds": SEEDS, "compute": {"device": "cpu", "executor": "processes", **compute}}
    return parsing.parse(name, parsing.merged(loader["parameters"], {name: changed})[name])


def final(method: str, settings: schema.Experiment, data: FederatedData, seed: int) -> float:
    """Return the mean accuracy of the last five rounds, in percent."""
    fed = assemble(settings, data, seed)
    run = engine.run(methods.create(method), fed, engine.Schedule(settings.rounds))
    fed.executor.close()
    return 100 * statistics.fmean(statistics.fmean(record.accuracy["after_transfer"]) for record in run.history[-5:])


def after_one_round(settings: schema.Experiment, data: FederatedData) -> Models:
    """Return the models of KT-pFL after one round."""
    fed = assemble(settings, data, 0)
    models: Models = engine.run(methods.create("kt_pfl"), fed, engine.Schedule(1)).state.models
    fed.executor.close()
    return models


def largest_difference(models: Models, reference: Models) -> float:
    """Return the largest ‖w - w'‖ / ‖w‖ over clients, where w are all weights and statistics of a model."""
    found = []
    for n, own in reference.items():
        names = [name for name, tensor in own.items() if tensor.is_floating_point()]
        one, other = vector_of(own, names), vector_of(models[n], names)
        found.append(float((one - other).norm() / one.norm()))
    return max(found)


def rows(title: str, name: str, env: str, folder: Path, changes: dict[str, Any]) -> list[str]:
    """Measure one dataset; return its table."""
    base = experiment(name, env, {}, changes)
    data = prepare(base, folder)
    lines = [
        f"## {title}, {base.rounds} rounds, {base.clients} clients, {', '.join(base.architectures)}",
        "",
        "| setting | KT-pFL, % | against float32 | local-only, % | against float32 | models, relative |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    reference: dict[str, list[float]] = {}
    weights = after_one_round(base, data)
    for setting, compute in SETTINGS.items():
        own = experiment(name, env, compute, changes)
        cells = []
        for method in METHODS:
            found = [final(method, own, data, seed) for seed in SEEDS]
            differences = [a - b for a, b in zip(found, reference.setdefault(method, found), strict=True)]
            cells.append(f"{_spread(found)} | {_spread(differences, signed=True)}")
        off = largest_difference(after_one_round(own, data), weights)
        lines.append(f"| {setting} | {' | '.join(cells)} | {off:.1e} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def _spread(values: list[float], *, signed: bool = False) -> str:
    mean = f"{statistics.fmean(values):+.2f}" if signed else f"{statistics.fmean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}"


def main() -> None:
    """Measure, and write the table."""
    torch.set_num_threads(1)
    lines = [
        f"# Faster settings against float32, {measure.today()}",
        "",
        f"{measure.hardware()}; seeds {', '.join(map(str, SEEDS))}; means ± standard deviations over seeds,",
        "the differences paired, in points; of the models after one round of KT-pFL the largest ‖w - w'‖ / ‖w‖.",
        "",
    ]
    lines += rows("Digits", "hetero_digits", "quick", ROOT / "data" / "01_raw", {})
    if images := os.environ.get("KTPFL_REAL_DATA"):
        sources = {"private": {"source": "npz:fashion_mnist.npz"}, "public": {"source": "npz:mnist.npz"}}
        lines += rows("Fashion-MNIST", "hetero_fashion_mnist", "results", Path(images), sources)
    else:
        sys.stderr.write("KTPFL_REAL_DATA is not set: no Fashion-MNIST.\n")
    measure.write("precision", lines[:-1])


if __name__ == "__main__":
    main()
