"""Local training of five clients, one after another and stacked, by architecture, precision and order of memory.

    python benchmarks/stacked.py                  on a GPU where there is one, else the CPU
    python benchmarks/stacked.py 64 3             with 64 images a client and 3 repetitions: minutes on a CPU

It prints a table and writes it to benchmarks/results/<date>-stacked.md. The workload: 5 clients with 500 images of
3x28x28 each (McMahan's CNN: 1x28x28), batches of 128, one epoch of SGD; the images are random, as time alone is
measured. Both ways train on the same batches, and are taken in turn.
"""

import statistics
import sys
from functools import partial
from typing import Any

import measure
import torch

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client, Compute, LocalTraining
from ktpfl_pipeline.models import build

ARCHITECTURES = ("lenet", "alexnet", "resnet18", "shufflenet_v2", "mcmahan_cnn")
CLIENTS, BATCH, CLASSES = 5, 128, 10


def samples(number: int, channels: int, seed: int) -> LabelledDataset:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, channels, 28, 28), dtype=torch.uint8, generator=generator)
    return LabelledDataset(images, torch.randint(0, CLASSES, (number,), generator=generator))


def federation(architecture: str, images: int, compute: Compute, executor: SerialExecutor) -> Federation:
    """Return the workload."""
    channels = 1 if architecture == "mcmahan_cnn" else 3
    nothing = samples(0, channels, 0)
    return Federation(
        tuple(Client(n, architecture, samples(images, channels, n), nothing, nothing) for n in range(CLIENTS)),
        samples(1, channels, 0).inputs,
        public_batch_size=1,
        classes=CLASSES,
        build=partial(build, shape=(channels, 28, 28), classes=CLASSES),
        training=LocalTraining(epochs=1, batch_size=BATCH, learning_rate=0.01),
        compute=compute,
        executor=executor,
    )


def seconds(fed: Federation) -> float:
    """Return the seconds of a round of local training; its losses are on the host then, so the device is done."""
    models = fed.initial_models()
    return measure.seconds_of(lambda: fed.train(models, 1))


def compare(architecture: str, images: int, dtype: Any, memory_format: Any, repetitions: int) -> str:
    """Return a row of the table."""
    compute = Compute(dtype=dtype, memory_format=memory_format)
    ways = (SerialExecutor, partial(StackedExecutor, CLIENTS))
    for way in ways:
        seconds(federation(architecture, 16, compute, way()))  # what is loaded once
    feds = [federation(architecture, images, compute, way()) for way in ways]
    if feds[0].device.type == "cuda":
        for fed in feds:
            seconds(fed)  # images on the device, kernels loaded for these sizes
    pairs = [[seconds(fed) for fed in feds] for _ in range(repetitions)]
    serial, stacked = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    precision = f"{dtype} | {memory_format}"
    return f"| {architecture} | {precision} | {serial:.3f} | {stacked:.3f} | {ratio:.2f} |"


def main(images: int = 500, repetitions: int = 7) -> None:
    """Take everything in turn, and write the table down."""
    device = Compute().place().type
    lines = [
        f"# Clients stacked, {measure.today()}",
        "",
        f"{measure.hardware()}, 1 thread; {CLIENTS} clients with {images} images each, batches of",
        f"{BATCH}, one epoch; medians of {repetitions} runs in turn. The ratio is the median of neighbouring runs:",
        "above 1, stacked clients are faster.",
        "",
        "| architecture | precision | order | one after another, s | stacked, s | times as fast |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for architecture in ARCHITECTURES:
        for dtype in ("float32", "bfloat16"):
            for memory_format in ("contiguous", "channels_last"):
                lines.append(compare(architecture, images, dtype, memory_format, repetitions))
                sys.stdout.write(lines[-1] + "\n")
                sys.stdout.flush()
    if device == "cpu":
        lines += ["", "On a GPU, for which it is made, stacking has not been measured."]
    measure.write("stacked", lines)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
