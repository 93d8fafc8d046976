"""The cost of training recipes: a round of local training with each recipe and with plain SGD, taken in turn.

    python benchmarks/recipes.py                 one client, a LeNet and a ResNet-18, 500 images of 3x32x32
    python benchmarks/recipes.py 500 5 lenet     images, turns, architectures

prints a table and writes it to benchmarks/results/<date>-recipes.md. Times are CPU seconds, which other processes
hardly affect. Images are random, because only time is measured.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import measure
import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining

RECIPES: dict[str, dict[str, Any]] = {
    "plain SGD": {},
    "momentum 0.9, weight decay": {"momentum": 0.9, "weight_decay": 5e-4},
    "clip 1.0": {"clip": 1.0},
    "adam": {"optimizer": "adam"},
    "adamw, state kept": {"optimizer": "adamw", "optimizer_state": "kept"},
    "label smoothing": {"label_smoothing": 0.1},
    "crop, flip": {"augmentation": ({"crop": {"padding": 4}}, {"flip": {}})},
    "rand_augment": {"augmentation": ({"rand_augment": {}},)},
    "color_jitter": {"augmentation": ({"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}},)},
}
SHAPE, CLASSES = (3, 32, 32), 10


def rounds(architecture: str, images: int, recipe: dict[str, Any]) -> Callable[[], Any]:
    """Prepare one client's round of local training, one epoch in batches of 128."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (images, *SHAPE), dtype=torch.uint8, generator=generator)
    own = LabeledDataset(inputs, torch.randint(0, CLASSES, (images,), generator=generator))
    fed = Federation(
        (Client(0, architecture, own, own, own),),
        inputs[:1],
        public_batch_size=1,
        classes=CLASSES,
        build=partial(models.build, shape=SHAPE, classes=CLASSES),
        training=LocalTraining(1, 128, 0.01, **recipe),
        compute=Compute("cpu"),
    )
    start = fed.initial_models()
    return lambda: fed.train(start, 1)


def main(images: int = 500, turns: int = 5, architectures: Sequence[str] = ("lenet", "resnet18")) -> None:
    """Measure all recipes in turn, and write the table."""
    head = "| architecture | recipe | seconds a round | × plain SGD's, median of turns | lowest, highest |"
    lines = [f"# Recipes, {measure.today()}", "", f"{measure.hardware()}, 1 thread; one client, {images} images of", ""]
    lines[-1:] = [f"3×32×32, batches of 128, one epoch; CPU seconds, {turns} turns.", "", head]
    lines += ["| --- | --- | ---: | ---: | ---: |"]
    for architecture in architectures:
        ways = {name: rounds(architecture, images, recipe) for name, recipe in RECIPES.items()}
        times: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(turns + 1):
            for name, way in ways.items():
                start = time.process_time()
                way()
                times[name] += [time.process_time() - start] * (turn > 0)  # the first turn is a warm-up
        for name, taken in times.items():
            ratios = sorted(a / b for a, b in zip(taken, times["plain SGD"], strict=True))
            spread = f"{statistics.median(ratios):.2f} | {ratios[0]:.2f}, {ratios[-1]:.2f}"
            lines.append(f"| {architecture} | {name} | {statistics.median(taken):.2f} | {spread} |")
    print("\n".join(lines))
    measure.write("recipes", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]) if sys.argv[1:] else main()
