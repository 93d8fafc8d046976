"""A round of FedAvg: the engine, serial and with workers, against the loop that is often written; in one run, in turn.

    python benchmarks/fedavg.py            prints a table and writes it to benchmarks/results/<date>-fedavg.md

The workload: 20 clients with 500 training and 100 test images of 1x28x28 each, McMahan's CNN without padding (582,026
parameters), batches of 128, one local epoch, all clients evaluated. The naive loop has a DataLoader over PIL images
with a transform per item, `torch.optim.SGD`, and as many threads as torch takes by itself. Both train on every image
once and evaluate on the test images; the images are random, as only time is measured.
"""

import datetime
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from ktpfl_pipeline import methods
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.executors import resources
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.workers import WorkersExecutor
from ktpfl_pipeline.core.federation import Client, Compute, Federation, LocalTraining
from ktpfl_pipeline.core.samples import Samples

CLIENTS, TRAIN, TEST, BATCH, RATE = 20, 500, 100, 128, 0.01
ROUNDS, REPETITIONS = 3, 5


def build(name: str) -> nn.Module:
    """Return McMahan's CNN without padding."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def samples(number: int, seed: int) -> Samples:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, 1, 28, 28), dtype=torch.uint8, generator=generator)
    return Samples(images, torch.randint(0, 10, (number,), generator=generator))


def federation(executor: SerialExecutor) -> Federation:
    """Return the workload for the engine."""
    clients = tuple(Client(n, "cnn", samples(TRAIN, n), samples(0, n), samples(TEST, 1000 + n)) for n in range(CLIENTS))
    return Federation(
        clients,
        samples(1, 0).images,
        public_batch_size=1,
        classes=10,
        build=build,
        training=LocalTraining(epochs=1, batch_size=BATCH, learning_rate=RATE),
        compute=Compute("cpu", threads=1),
        executor=executor,
    )


class Items(Dataset[tuple[torch.Tensor, int]]):
    """Images that are transformed when they are asked for, one by one."""

    def __init__(self, given: Samples) -> None:
        """Keep the images as PIL has them."""
        self.images = [Image.fromarray(image[0].numpy()) for image in given.images]
        self.labels = given.labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        """Return one image as numbers from -1 to 1, and its label."""
        return self.transform(self.images[place]), self.labels[place]


def naive(model: dict[str, torch.Tensor], loaders: list[tuple[Any, Any]]) -> dict[str, torch.Tensor]:
    """Return the common model after one round."""
    trained = []
    for train, _ in loaders:
        module = build("cnn")
        module.load_state_dict(model)
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for images, labels in train:
            optimizer.zero_grad()
            F.cross_entropy(module(images), labels).backward()
            optimizer.step()
        trained.append(module.state_dict())
    average = {name: sum(params[name] for params in trained) / len(trained) for name in model}
    module = build("cnn").eval()
    module.load_state_dict(average)
    with torch.no_grad():
        for _, test in loaders:
            sum(int((module(images).argmax(dim=1) == labels).sum()) for images, labels in test)
    return average


def per_round(run: Callable[[], Any]) -> float:
    """Return the seconds of one of the rounds that `run` makes."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / ROUNDS


def main() -> None:
    """Take the three ways in turn, and write the table down."""
    threads, workers = torch.get_num_threads(), resources.default_workers()
    sets = [(samples(TRAIN, n), samples(TEST, 1000 + n)) for n in range(CLIENTS)]
    loaders = [(DataLoader(Items(train), BATCH, shuffle=True), DataLoader(Items(test), BATCH)) for train, test in sets]

    def loop() -> None:
        torch.set_num_threads(threads)
        model = build("cnn").state_dict()
        for _ in range(ROUNDS):
            model = naive(model, loaders)

    def with_engine(executor: SerialExecutor) -> Callable[[], Any]:
        fed = federation(executor)

        def run() -> None:
            torch.set_num_threads(1)
            engine.run(methods.create("fedavg"), fed, engine.Schedule(ROUNDS))

        return run

    ways = {
        f"naive loop, {threads} threads": loop,
        "serial, 1 thread": with_engine(SerialExecutor()),
        f"{workers} workers, 1 thread each": with_engine(WorkersExecutor(workers)),
    }
    for way in ways.values():
        way()  # what is made once: optimizers import torch's compiler, workers are forked
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPETITIONS):
        for name, way in ways.items():
            times[name].append(per_round(way))
    first = next(iter(times.values()))
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        f"# A round of FedAvg, {today}",
        "",
        f"{platform.machine()}, {resources.cores()} cores, torch {torch.__version__}, float32; medians of",
        f"{REPETITIONS} runs of {ROUNDS} rounds, taken in turn.",
        "The ratio is the median of those of neighbouring runs.",
        "",
        "| way | seconds a round | training images per second | times as fast as the naive loop |",
        "| --- | --- | --- | --- |",
    ]
    for name, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(first, taken, strict=True))
        middle = statistics.median(taken)
        lines.append(f"| {name} | {middle:.2f} | {CLIENTS * TRAIN / middle:,.0f} | {ratio:.2f} |")
    text = "\n".join(lines) + "\n"
    Path(__file__).parent.joinpath("results", f"{today}-fedavg.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
