"""Other frameworks and this one on the same machine: the same clients, network, batches and rate, turn by turn.

    python benchmarks/race.py --pfllib CHECKOUT [--clients 20 --images 640 --rounds 2 --turns 5 --batches 10 128]
    python benchmarks/race.py --work blazefl --rivals blazefl=PYTHON blazefl-threads=PYTHON flower=PYTHON pfl=PYTHON

CHECKOUT is a folder with TsingZ0/PFLlib, and PYTHON an interpreter with the framework, in an environment of its own;
`rivals.py` runs both. The work is FedAvg as in PFLlib's quick start (`mnist`, for PFLlib only), BlazeFL's benchmark
(`blazefl`) or pfl-research's (`pfl`). Images are `mnist_20_clients.npz` or `cifar10.npz` in the folder KTPFL_REAL_DATA
or in data/01_raw; the second has only 10,000, so clients share them. MNIST's clients have a multiple of 128 training
images, because PFLlib leaves out an incomplete batch. PFLlib uses all cores for one client, and also runs without its
evaluation, which includes training images. The others compute two clients at once, and evaluate on test images.

Each turn is a new process. Its first round counts as start-up, less the mean of the others. If only the last round is
evaluated, as in `pfl`, a second table leaves this round out. Prints the tables and writes them, with the raw times, to
benchmarks/results/<date>-<work>-race.md.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from studies import markdown
from torch import nn

from ktpfl_pipeline.analysis.statistics import difference
from ktpfl_pipeline.models import build

WHOLE = 128
MNIST = {"clients": 20, "images": 640, "epochs": 1, "rate": 0.005, "always": True, "batches": [10, 128]}
BLAZEFL = {"clients": 100, "images": 500, "epochs": 5, "rate": 0.1, "always": True, "batches": [50]}
PFL = {"clients": 1000, "images": 50, "epochs": 1, "rate": 0.1, "always": False, "batches": [10], "cohort": 50}
WORKS: dict[str, dict[str, Any]] = {"mnist": MNIST, "blazefl": BLAZEFL, "pfl": PFL}


class Turn(NamedTuple):
    """When a process was started and when each round ended, in seconds, and the last accuracy."""

    start: float
    marks: list[float]
    accuracy: float

    def seconds(self, rounds: int) -> float:
        """Return the seconds of this many rounds after the first."""
        return self.marks[rounds] - self.marks[0]

    def startup(self, rounds: int) -> float:
        """Return the seconds of the first round without the mean of the rounds after it."""
        return self.marks[0] - self.start - self.seconds(rounds) / rounds


def network(work: str) -> nn.Module:
    """Return the network with its initial weights. Rivals load it without this package, so its layers are torch's."""
    torch.manual_seed(0)
    if work == "mnist":
        return build("mcmahan_unpadded", (1, 28, 28), 10)
    if work == "blazefl":
        first = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        last = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    else:
        first = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
        last = [nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
    return nn.Sequential(*first, nn.Flatten(), *last)


def clients(work: str, number: int, images: int) -> Iterator[tuple[list[torch.Tensor], ...]]:
    """Yield each client's training and test images with their labels.

    MNIST's clients have a seventh as many test images; BlazeFL's have two shards of images sorted by label.
    """
    stored = np.load(measure.RAW / ("mnist_20_clients.npz" if work == "mnist" else "cifar10.npz"))
    pixels, labels, rows = stored["images"], stored["labels"], list[tuple[np.ndarray, np.ndarray]]()
    if work == "mnist":
        for n in range(number):
            own = stored["clients"] == n
            train, test = np.flatnonzero(own & ~stored["test"]), np.flatnonzero(own & stored["test"])
            size = max(WHOLE, min(images, len(train)) // WHOLE * WHOLE)
            rows.append((train[:size], test[: size // 7]))
        pixels = pixels[:, None]
    else:
        random = np.random.default_rng(0)
        train, test = np.split(random.permutation(len(labels)), [len(labels) * 4 // 5])
        taken = np.resize(train, number * images)
        if work == "blazefl":
            taken = random.permutation(taken[np.argsort(labels[taken], kind="stable")].reshape(2 * number, -1))
        rows = list(zip(taken.reshape(number, images), np.array_split(test, number), strict=True))
        pixels = pixels.transpose(0, 3, 1, 2)
    for parts in rows:
        yield tuple([torch.from_numpy(each[part]).contiguous() for each in (pixels, labels)] for part in parts)


def turn(command: list[str]) -> Turn:
    start, environment = time.time(), os.environ | {"FLWR_TELEMETRY_ENABLED": "0"}
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(printed.splitlines()[-1])
    return Turn(start, found["marks"], found["accuracy"])


def interval(reference: list[float], taken: list[float]) -> str:
    """Return the mean ratio of neighboring turns with its 95 % interval, both of the logarithms."""
    found = difference([math.log(a / b) for a, b in zip(reference, taken, strict=True)])
    assert found is not None
    ends = [f"{math.exp(end):.2f}" for end in found.ends or ()]
    return f"{math.exp(found.mean):.2f}" + f" [{', '.join(ends)}]" * bool(ends)


def table(turns: dict[str, list[Turn]], rounds: int) -> list[str]:
    rivals = [name for name in turns if not name.startswith("ours")]
    heads = ["", "seconds a round", *(f"× {name}" for name in rivals), "start-up", "accuracy", "seconds of each turn"]
    lines = [heads]
    spent = {name: [each.seconds(rounds) for each in found] for name, found in turns.items()}
    for name, found in turns.items():
        ratios = [interval(spent[one], spent[name]) if one != name else "1" for one in rivals]
        startup = statistics.median(each.startup(rounds) for each in found)
        shown = [f"{statistics.median(spent[name]) / rounds:.2f}", *ratios, f"{startup:.1f}"]
        accuracy = statistics.mean(each.accuracy for each in found)
        lines.append([name, *shown, f"{accuracy:.1%}", " ".join(f"{each:.2f}" for each in spent[name])])
    return markdown(lines).replace("|  |", "| |").splitlines()


def race(asked: argparse.Namespace, batch: int) -> list[str]:
    """Run all ways in turn, so that other load affects all alike."""
    script = str(Path(__file__).with_name("rivals.py"))
    ways = dict(each.split("=", 1) for each in asked.rivals)
    if asked.pfllib:
        ways |= dict.fromkeys(("pfllib", "pfllib without evaluation"), sys.executable)
    ways |= dict.fromkeys(("ours", "ours, contiguous"), sys.executable)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    turns: dict[str, list[Turn]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(network(asked.work), Path(folder, "network.pt"))
        for n, parts in enumerate(clients(asked.work, asked.clients, asked.images)):
            for name, part in zip(("train", "test"), parts, strict=True):
                torch.save(part, Path(folder, f"{name}{n}.pt"))
        work = {key: WORKS[asked.work][key] for key in ("epochs", "rate", "always")}
        work |= {"clients": asked.clients, "cohort": WORKS[asked.work].get("cohort", asked.clients), "batch": batch}
        work |= {"rounds": asked.rounds, "pfllib": os.path.abspath(asked.pfllib)}
        Path(folder, "work.json").write_text(json.dumps(work))
        for _ in range(asked.turns):
            for name, python in ways.items():
                command = [python, *(launcher if name == "pfl" else []), script, name, folder]
                turns[name].append(turn(command))
    lines = [f"## Batches of {batch}", "", *table(turns, asked.rounds), ""]
    if not work["always"] and asked.rounds > 1:
        lines += ["Without the last round, the only one with an evaluation:", "", *table(turns, asked.rounds - 1), ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pfllib", default="", metavar="CHECKOUT")
    parser.add_argument("--rivals", nargs="+", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--work", choices=WORKS, default="mnist")
    for name, default in (("clients", None), ("images", None), ("rounds", 2), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batches", type=int, nargs="+")
    asked = parser.parse_args()
    for name in ("clients", "images", "batches"):
        setattr(asked, name, getattr(asked, name) or WORKS[asked.work][name])
    load = os.getloadavg()[0]
    lines = [f"# Race: {asked.work}", "", f"{measure.hardware()}; load when it started: {load:.1f}.", ""]
    hidden = {each: each.split("=")[0] for each in asked.rivals} | {asked.pfllib: "CHECKOUT"}
    given = [hidden.get(each, each) for each in sys.argv[1:]]
    lines += [f"`{' '.join(['python', 'benchmarks/race.py', *given])}`", ""]
    for batch in asked.batches:
        lines += race(asked, batch)
        measure.write(f"{asked.work}-race", lines[:-1])
    print("\n".join(lines))


if __name__ == "__main__":
    main()
