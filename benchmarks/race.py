"""Other frameworks and this one on the same machine: the same clients, model, batches and rate, turn by turn.

    python benchmarks/race.py --pfllib CHECKOUT [--clients 20 --images 640 --rounds 2 --turns 5 --batches 10 128]

CHECKOUT is a folder with TsingZ0/PFLlib, whose own servers, clients, data loaders and files are used. The work is its
quick start: FedAvg on its MNIST clients (`mnist_20_clients.npz` in the folder KTPFL_REAL_DATA or in data/01_raw), its
network of 582,026 parameters, one local epoch, rate 0.005. Each client has at most `images` training images, and a
multiple of 128, because PFLlib leaves out an incomplete batch. Both frameworks use all cores. PFLlib evaluates on
training images too, so it also runs without any evaluation; ours always evaluates on test images. Each turn starts
from initial weights.

Prints a table and writes it, with the raw times, to benchmarks/results/<date>-race.md.
"""

import argparse
import copy
import importlib
import math
import os
import statistics
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from peers import defaults

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.statistics import difference
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.kinds import IMAGES
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, ExecutorSettings, LocalTraining
from ktpfl_pipeline.models import build

RATE, WHOLE, ARCHITECTURE = 0.005, 128, "mcmahan_unpadded"
Parts = tuple[LabeledDataset, LabeledDataset]
"""A client's training and test images."""
Run = Callable[[], Callable[[], float]]
"""Does the work of a turn, and returns the function that computes the accuracy after it."""


def clients(number: int, images: int) -> Iterator[Parts]:
    """Yield the images of the first clients; a client has a seventh as many test images as training images."""
    stored = np.load(measure.RAW / "mnist_20_clients.npz")
    for n in range(number):
        own = stored["clients"] == n
        train, test = np.flatnonzero(own & ~stored["test"]), np.flatnonzero(own & stored["test"])
        size = max(WHOLE, min(images, len(train)) // WHOLE * WHOLE)
        parts = (train[:size], test[: size // 7])
        yield tuple(  # type: ignore[misc]
            LabeledDataset(torch.from_numpy(stored["images"][rows])[:, None], torch.from_numpy(stored["labels"][rows]))
            for rows in parts
        )


def pfllib(checkout: Path, number: int, images: int, batch: int, rounds: int, evaluates: bool) -> Run:
    """Prepare PFLlib's FedAvg on files of its own form."""
    place = Path(tempfile.mkdtemp())
    for n, parts in enumerate(clients(number, images)):
        for name, part in zip(("train", "test"), parts, strict=True):
            file = place / "dataset" / "MNIST" / name / f"{n}.npz"
            file.parent.mkdir(parents=True, exist_ok=True)
            arrays: Any = {"x": IMAGES.to_float(part.inputs).numpy(), "y": part.labels.numpy()}
            np.savez_compressed(file, data=arrays)
    (place / "system").mkdir()
    os.chdir(place / "system")  # its paths are relative
    sys.modules["h5py"] = types.ModuleType("h5py")  # used only for results on disk
    sys.path.insert(0, str(checkout / "system"))
    layers, servers = (importlib.import_module(f"flcore.{each}") for each in ("trainmodel.models", "servers.serveravg"))
    args = types.SimpleNamespace(**defaults(checkout))
    vars(args).update(device="cpu", batch_size=batch, local_learning_rate=RATE, num_clients=number)
    args.global_rounds = rounds - 1  # its loop takes one more
    torch.manual_seed(0)
    network = layers.FedAvgCNN()
    head, network.fc = network.fc, torch.nn.Identity()
    args.model = layers.BaseHeadSplit(network, head)
    with redirect_stdout(StringIO()):
        server = servers.FedAvg(args, 0)
    server.save_results = server.save_global_model = lambda: None
    server.Budget = [0.0]  # its mean leaves out the first
    if not evaluates:
        server.evaluate = lambda: server.rs_test_acc.append(0.0)

    def accuracy() -> float:
        server.send_models()
        _, samples, correct, _ = server.test_metrics()
        return float(sum(correct) / sum(samples))

    def run() -> Callable[[], float]:
        server.global_model = copy.deepcopy(args.model)
        with redirect_stdout(StringIO()):
            server.train()
        return accuracy

    return run


def ours(number: int, images: int, batch: int, rounds: int, memory_format: Any = "contiguous") -> Run:
    made = tuple(
        Client(n, ARCHITECTURE, train, LabeledDataset(train.inputs[:0], train.labels[:0]), test)
        for n, (train, test) in enumerate(clients(number, images))
    )
    compute = Compute("cpu", executor=ExecutorSettings(resources.cores()), memory_format=memory_format)
    training = LocalTraining(epochs=1, batch_size=batch, learning_rate=RATE)
    public = made[0].train.inputs[:1]
    fed = Federation(
        made, public, 1, 10, partial(build, shape=(1, 28, 28), classes=10), training=training, compute=compute
    )

    def run() -> Callable[[], float]:
        last = engine.run(methods.create("fedavg"), fed, engine.Schedule(rounds)).history[-1]
        return lambda: float(np.average(last.accuracy[AFTER_TRANSFER], weights=[len(each.test) for each in made]))

    return run


def accuracy(make: Callable[..., Run], *arguments: Any) -> float:
    return make(*arguments)()()


def interval(reference: list[float], taken: list[float]) -> str:
    """Return the mean ratio of neighboring turns with its 95 % interval, both of the logarithms."""
    found = difference([math.log(a / b) for a, b in zip(reference, taken, strict=True)])
    assert found is not None
    ends = [f"{math.exp(end):.2f}" for end in found.ends or ()]
    return f"{math.exp(found.mean):.2f}" + f" [{', '.join(ends)}]" * bool(ends)


def race(asked: argparse.Namespace, batch: int) -> list[str]:
    work = (asked.clients, asked.images, batch, asked.rounds)
    makes: dict[str, tuple[Callable[..., Run], tuple[Any, ...]]] = {
        "PFLlib": (pfllib, (asked.pfllib.resolve(), *work, True)),
        "PFLlib without evaluation": (pfllib, (asked.pfllib.resolve(), *work, False)),
        "ours": (ours, work),
        "ours, channels last": (ours, (*work, "channels_last")),
    }
    ways = {name: measure.Way(make, *arguments) for name, (make, arguments) in makes.items()}
    times = measure.in_turn(ways, asked.turns)
    lines = ["| | seconds a round | × PFLlib | × PFLlib without evaluation | accuracy | seconds of each turn |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    first, second = list(times.values())[:2]
    for name, taken in times.items():
        ratios = [interval(reference, taken) if reference is not taken else "1" for reference in (first, second)]
        raw = " ".join(f"{seconds:.2f}" for seconds in taken)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            reached = pool.submit(accuracy, makes[name][0], *makes[name][1]).result()
        median = statistics.median(taken) / asked.rounds
        lines.append(f"| {name} | {median:.2f} | {' | '.join(ratios)} | {reached:.1%} | {raw} |")
    return [f"## Batches of {batch}", "", *lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pfllib", type=Path, required=True)
    for name, default in (("clients", 20), ("images", 640), ("rounds", 2), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 128])
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    lines = ["# Race with PFLlib", "", f"{measure.hardware()}; load when it started: {load:.1f}.", ""]
    given = ["CHECKOUT" if each == str(asked.pfllib) else each for each in sys.argv[1:]]
    lines += [f"`{' '.join(['python', 'benchmarks/race.py', *given])}`", ""]
    for batch in asked.batches:
        lines += race(asked, batch)
        measure.write("race", lines[:-1])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
