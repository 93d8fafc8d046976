"""The memory of a hundred clients with a ResNet-18 each, of which a tenth takes part in a round.

    python benchmarks/memory.py            prints a table and writes it to benchmarks/results/<date>-memory.md

A model has 11.2 million parameters, 45 MB. A hundred models take 4.5 GB, and the states of two rounds would take 9 GB.
Both states share the weights of clients outside the cohort, and all clients start from one model. Each method runs in a
separate process, so its peak memory is measured separately.
"""

import resource
import subprocess
import sys
from functools import partial

import measure
import torch

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, LocalTraining
from ktpfl_pipeline.methods import compared

CLIENTS, PARTICIPATION, ROUNDS = 100, 0.1, 2
COMPARED = ("kt_pfl", *compared(one_architecture=True))


def federation() -> Federation:
    """Return a hundred clients with a few random images each, because only the memory of models is measured."""
    generator = torch.Generator().manual_seed(0)

    def images(number: int) -> torch.Tensor:
        return torch.randint(0, 256, (number, 3, 32, 32), dtype=torch.uint8, generator=generator)

    def samples(number: int) -> LabeledDataset:
        return LabeledDataset(images(number), torch.randint(0, 10, (number,), generator=generator))

    clients = tuple(Client(n, "resnet18", samples(16), samples(2), samples(4)) for n in range(CLIENTS))
    return Federation(
        clients,
        images(64),
        public_batch_size=32,
        classes=10,
        build=partial(models.build, shape=(3, 32, 32), classes=10),
        training=LocalTraining(epochs=1, batch_size=16, learning_rate=0.01),
        distillation=Distillation(epochs=1, batch_size=32, learning_rate=0.01),
        compute=Compute("cpu"),
    )


def peak(method: str) -> float:
    """Run `method` and return this process's peak resident memory in GB."""
    engine.run(methods.create(method), federation(), engine.Schedule(ROUNDS, PARTICIPATION))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Measure each method in a separate process, and write the table."""
    if len(sys.argv) > 1:
        print(peak(sys.argv[1]))
        return
    lines = [
        f"# Memory, {measure.today()}",
        "",
        f"{measure.hardware()}, float32 on the CPU: {CLIENTS} clients with a ResNet-18 each,",
        f"{PARTICIPATION:.0%} of them in each of {ROUNDS} rounds, all evaluated.",
        "",
        "| method | peak resident memory (GB) |",
        "| --- | --- |",
    ]
    for method in COMPARED:
        found = subprocess.run([sys.executable, __file__, method], check=True, capture_output=True, text=True)
        lines.append(f"| {methods.title(method)} | {float(found.stdout):.2f} |")
        print(lines[-1], flush=True)
    measure.write("memory", lines)


if __name__ == "__main__":
    main()
