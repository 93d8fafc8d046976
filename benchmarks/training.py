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
are random, because only time is measured. The ratio is the median of the ratios of neighboring runs. The share compares
the operations per second of the whole round with a large matrix product in the same precision on all threads.
"""

import statistics
import sys
from collections.abc import Callable
from typing import Any

import measure
import torch
from naive import Loop
from torch.utils.flop_counter import FlopCounterMode
from workloads import SIZE, TEST, TRAIN, WAYS, WORKLOADS, Workload, build, federation

from ktpfl_pipeline import methods
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.settings import ExecutorSettings


def naive_rounds(work: Workload) -> Callable[[], None]:
    """Prepare the usual loop, with torch's own number of threads."""
    act = getattr(Loop(federation(work)), work.method)

    def run() -> None:
        for _ in range(work.rounds):
            act()

    return run


def engine_rounds(work: Workload, settings: dict[str, Any]) -> Callable[[], Any]:
    """Prepare the engine."""
    fed = federation(work, **settings)
    return lambda: engine.run(methods.create(work.method), fed, engine.Schedule(work.rounds))


def operations(work: Workload) -> float:
    """Return the floating-point operations of all clients in one round: only products, forward and backward."""
    total = 0
    for name in work.architectures:
        module, image = build(work.channels, name).eval(), torch.zeros(2, work.channels, SIZE, SIZE)
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            module(image)
        with FlopCounterMode(display=False) as both:
            module(image).sum().backward()
        public = work.public if work.method == "kt_pfl" else 0
        total += (TRAIN + public) * both.get_total_flops() // 2 + (TEST + public) * forward.get_total_flops() // 2
    return total


def table(name: str, work: Workload, peaks: dict[str, float]) -> list[str]:
    """Measure one workload in all ways; return its table."""
    cores = resources.cores()
    ways = {f"naive loop, {torch.get_num_threads()} threads": measure.Way(naive_rounds, work)}
    for way in work.ways or WAYS:
        ways[way] = measure.Way(engine_rounds, work, {"executor": ExecutorSettings(cores), **WAYS[way]})
    times, memory = measure.in_turn(ways, work.turns, work.sampled_every)
    for process in ways.values():
        process.close()
    images = len(work.architectures) * TRAIN
    first = next(iter(times.values()))
    lines = [
        f"## {name}",
        "",
        f"Medians over turns, {work.turns} of them; rounds in a turn: {work.rounds}.",
        "",
        "| way | seconds a round | private images a second | × the naive loop | share of ceiling | peak memory, GB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for way, taken in times.items():
        seconds = statistics.median(taken) / work.rounds
        dtype = "bfloat16" if "bfloat16" in way else "float32"
        share = (
            operations(work)
            / seconds
            / 1e9
            / peaks[f"{dtype}, {1 if WAYS.get(way, {}).get('executor') == ExecutorSettings() else cores}"]
        )
        lines.append(
            f"| {way} | {seconds:.2f} | {images / seconds:,.0f} | {measure.ratio(first, taken):.2f} | {share:.0%} "
            f"| {memory[way]:.1f} |"
        )
    print("\n".join(lines), flush=True)
    return [*lines, ""]


def main() -> None:
    """Measure the workloads that are named, or all."""
    chosen = sys.argv[1:] or list(WORKLOADS)
    if unknown := set(chosen) - set(WORKLOADS):
        sys.exit(f"There is no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}.")
    peaks = {
        f"{dtype}, {threads}": measure.ceiling(dtype, threads)
        for dtype in measure.DTYPES
        for threads in sorted({1, resources.cores()})
    }
    lines = [f"# Rounds of training, {measure.today()}", "", f"{measure.hardware()}.", ""]
    lines += ["The ceiling, GFLOP/s of a product of two square matrices:", "", "| precision, threads | GFLOP/s |"]
    lines += ["| --- | --- |", *(f"| {name} | {value:,.0f} |" for name, value in peaks.items()), ""]
    print("\n".join(lines), flush=True)
    for name in chosen:
        lines += table(name, WORKLOADS[name], peaks)
    measure.write("training", lines[:-1])


if __name__ == "__main__":
    main()
