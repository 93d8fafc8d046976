"""The CPU time of a round at an earlier commit and now: KT-pFL with several networks, and FedAvg.

    python benchmarks/speed.py <commit> [paper] [light] [quick] [fedavg]

writes benchmarks/results/<date>-speed.md. Each commit has one process with one thread, which trains one client after
another. The measure is CPU time of user and system, which other processes on the machine hardly affect. Both processes
take turns, and the ratio is the median over neighboring turns. Each commit runs its own copy of this file, so the names
of settings may differ.

| workload | what a turn is |
| --- | --- |
| paper | a round in bfloat16 if possible, channels last: the four networks, a client each, 3x28x28, 8 images a kind |
| light | two rounds on images like digits: float32, 20 clients, four light models, batches of 16 |
| quick | like light, now with `--env=quick`'s memory format, channels last; at the commit, contiguous |
| fedavg | a round in float32: McMahan's CNN, 20 clients with 500 images each, batches of 128, and its evaluation |
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import measure
import torch
import workloads
from workloads import CLASSES, PAPER, SIZE, samples

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, LocalTraining, MemoryFormat

ROOT = Path(__file__).parents[1]
LIGHT = ("lenet", "cnn", "cnn_bn", "mlp") * 5
TURNS = {"paper": 3, "light": 7, "quick": 7, "fedavg": 5}


def build(channels: int, name: str) -> torch.nn.Module:
    """Return a model of the registry."""
    return models.build(name, (channels, SIZE, SIZE), CLASSES)


def federation(architectures: tuple[str, ...], channels: int, sizes: tuple[int, ...], **settings: Any) -> Federation:
    """Return clients of these architectures; `sizes` are numbers of training, validation, test and public images."""
    *own, public = sizes
    clients = tuple(
        Client(n, name, *(samples(size, channels, 100 * n + part) for part, size in enumerate(own)))  # type: ignore[arg-type]
        for n, name in enumerate(architectures)
    )
    images = samples(public, channels, 1).inputs
    return Federation(clients, images, len(images), CLASSES, partial(build, channels), **settings)


def rounds(name: str, now: bool) -> Any:
    """Prepare the rounds of a turn, with the settings of the working tree (`now`) or of the commit."""
    if name == "fedavg":
        fed, schedule = workloads.federation(workloads.WORKLOADS["fedavg"]), engine.Schedule(1)
        return lambda: engine.run(methods.create("fedavg"), fed, schedule)
    if name == "paper":
        recipe = {"training": LocalTraining(1, 8, 0.01), "distillation": Distillation(1, 8, 0.01)}
        compute, schedule = Compute("cpu", measure.DTYPES[-1], "channels_last"), engine.Schedule(1)
        fed = federation(PAPER, 3, (8, 0, 8, 8), **recipe, compute=compute)
    else:
        recipe = {"training": LocalTraining(5, 16, 0.05), "distillation": Distillation(1, 32, 0.05)}
        order: MemoryFormat = "channels_last" if name == "quick" and now else "contiguous"
        compute, schedule = Compute("cpu", "float32", order), engine.Schedule(2, adapt_epochs=(1,))
        fed = federation(LIGHT, 1, (28, 3, 31, 200), **recipe, compute=compute)
    return lambda: engine.run(methods.create("kt_pfl"), fed, schedule)


def serve(name: str, now: bool) -> None:
    """Do a turn for each line of standard input, and print its CPU seconds."""
    torch.set_num_threads(1)
    resources.keep_freed_memory()  # as workers do
    run = rounds(name, now)
    for _ in sys.stdin:
        start = time.process_time()
        run()
        print(time.process_time() - start, flush=True)


def process(tree: Path, name: str) -> "subprocess.Popen[str]":
    """Start a process that does the turns of a workload with the source of `tree`."""
    scripts = tree / "benchmarks"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(scripts)])}
    command = [sys.executable, str(scripts / "speed.py"), "--serve", "now" if tree == ROOT else "before", name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def turn(way: "subprocess.Popen[str]") -> float:
    """Let a process do a turn, and return its CPU seconds."""
    assert way.stdin is not None and way.stdout is not None
    way.stdin.write("\n")
    way.stdin.flush()
    return float(way.stdout.readline())


def row(name: str, earlier: Path) -> str:
    """Measure a workload with both sources. The first turn of each is a warm-up and does not count."""
    if f'"{name}"' not in (earlier / "benchmarks/speed.py").read_text():
        raise SystemExit(f"benchmarks/speed.py of the earlier commit has no workload {name!r}: leave {name} out.")
    ways = [process(tree, name) for tree in (earlier, ROOT)]
    for way in ways:
        turn(way)
    taken = [[turn(way) for way in ways] for _ in range(TURNS[name])]
    for way in ways:
        way.communicate()
    ratios = sorted(before / after for before, after in taken)
    before, after = (statistics.median(each) for each in zip(*taken, strict=True))
    spread = f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} to {ratios[-1]:.2f}"
    return f"| {name} | {before:.2f} | {after:.2f} | {spread} |"


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what is compared with")
    parser.add_argument("workloads", nargs="*", default=[*TURNS], help=f"{', '.join(TURNS)}; all by default")
    parser.add_argument("--serve", choices=("before", "now"), help="do turns of the workload with the imported source")
    given = parser.parse_args()
    if given.serve:
        serve(given.commit, given.serve == "now")
        return
    lines = [
        f"# A round before and now, {measure.today()}",
        "",
        f"{measure.hardware()}; one thread, seconds of the processor in a turn, medians; before is {given.commit}.",
        "",
        "| workload | before | now | × as fast, median | of single turns |\n| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{folder}/earlier", given.commit], check=True)
        try:
            for name in given.workloads:
                lines.append(row(name, Path(folder) / "earlier"))
                print(lines[-1], flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/earlier"], check=True)
    measure.write("speed", lines)


if __name__ == "__main__":
    main()
