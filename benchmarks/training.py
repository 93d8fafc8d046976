"""Rounds of training: the engine in several ways against the usual loop, taken in turn.

    python benchmarks/training.py                  all workloads; an hour on two cores
    python benchmarks/training.py fedavg lenet     two workloads

prints a table for each workload and writes them to benchmarks/results/<date>-training.md.

| workload | what a round is |
| --- | --- |
| fedavg | FedAvg, 20 clients, McMahan's CNN without padding (582,026 parameters) at 1x28x28, 500 images each |
| lenet, alexnet, resnet18, shufflenet_v2 | two clients of the architecture at 3x28x28, 500 images each, alone |
| kt_pfl | KT-pFL, 5 clients of each of the four, 500 images each, 3,000 public images, batches of 256, one step |

All workloads have batches of 128, one local epoch, plain SGD, and an evaluation of every client on 100 images. Images
are random, because only time is measured. The ratio is the median of the ratios of neighboring runs.
"""

import statistics
import sys
from collections.abc import Callable
from typing import Any

import measure
import torch
from workloads import TRAIN, WAYS, WORKLOADS, Loop, Workload, federation

from ktpfl_pipeline import methods
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.machine.resources import cores
from ktpfl_pipeline.core.settings import ExecutorSettings


def naive_rounds(work: Workload) -> Callable[[], None]:
    """Prepare the usual loop, with torch's own number of threads."""
    act = getattr(Loop(federation(work)), work.method)

    def run() -> None:
        for _ in range(work.rounds):
            act()

    return run


def engine_rounds(work: Workload, settings: dict[str, Any]) -> Callable[[], Any]:
    fed = federation(work, **settings)
    return lambda: engine.run(methods.create(work.method), fed, engine.Schedule(work.rounds))


def table(name: str, work: Workload) -> list[str]:
    ways = {f"naive loop, {torch.get_num_threads()} threads": measure.Way(naive_rounds, work)}
    for way in work.ways or WAYS:
        ways[way] = measure.Way(engine_rounds, work, {"executor": ExecutorSettings(cores()), **WAYS[way]})
    times = measure.in_turn(ways, work.turns)
    images, first = len(work.architectures) * TRAIN, next(iter(times.values()))
    lines = [f"## {name}", "", f"Medians over turns, {work.turns} of them; rounds in a turn: {work.rounds}.", ""]
    lines += ["| way | seconds a round | private images a second | × the naive loop |", "| --- | --- | --- | --- |"]
    for way, taken in times.items():
        seconds = statistics.median(taken) / work.rounds
        lines.append(f"| {way} | {seconds:.2f} | {images / seconds:,.0f} | {measure.ratio(first, taken):.2f} |")
    print("\n".join(lines), flush=True)
    return [*lines, ""]


def main() -> None:
    chosen = sys.argv[1:] or list(WORKLOADS)
    if unknown := set(chosen) - set(WORKLOADS):
        sys.exit(f"There is no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}.")
    lines = [f"# Rounds of training, {measure.today()}", "", f"{measure.hardware()}.", ""]
    for name in chosen:
        lines += table(name, WORKLOADS[name])
    measure.write("training", lines[:-1])


if __name__ == "__main__":
    main()
