"""The effect of huge pages on a step on a CPU: with huge pages for large tensors, as this package sets, and without.

    python benchmarks/huge_pages.py

writes benchmarks/results/<date>-huge-pages.md: milliseconds and page faults per step, with both ways in turn.
"""

import os
import statistics
from collections.abc import Callable
from pathlib import Path

import measure
import torch
from torch.nn import functional

from ktpfl_pipeline import models

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 32
ARCHITECTURES = ("lenet", "cnn_bn", "mcmahan_cnn", "alexnet", "torchvision:resnet18", "torchvision:shufflenet_v2_x1_0")
WAYS = {"as torch is": "0", "huge pages": "1"}
STEPS, TURNS = 5, 9


def steps(architecture: str, allowed: str) -> Callable[[], None]:
    """Prepare several steps of plain SGD in a process that has not allocated memory yet."""
    os.environ["THP_MEM_ALLOC_ENABLE"] = allowed
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = models.build(architecture, SHAPE, CLASSES)
    images, labels = torch.randn(BATCH, *SHAPE), torch.randint(CLASSES, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def take() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return take


def row(architecture: str) -> str:
    """Return one architecture's times and faults."""
    ways = {name: measure.Way(steps, architecture, allowed) for name, allowed in WAYS.items()}
    measure.in_turn(ways, 1)  # a warm-up
    before = {name: way.page_faults() for name, way in ways.items()}
    times, _ = measure.in_turn(ways, TURNS)  # after one more turn, which measures memory
    faults = [(way.page_faults() - before[name]) / (TURNS + 1) / STEPS for name, way in ways.items()]
    for way in ways.values():
        way.close()
    cells = [f"{1e3 * statistics.median(taken) / STEPS:.3g}" for taken in times.values()]
    faster = measure.ratio(*times.values())
    return f"| {' | '.join([architecture, *cells, f'{faster:.2f}', *(f'{each:,.0f}' for each in faults)])} |"


def main() -> None:
    """Measure, and write the table."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    lines = [
        f"# Huge pages for large tensors, {measure.today()}",
        "",
        f"{measure.hardware()}; one thread, float32, images of {' × '.join(map(str, SHAPE))}, batches of {BATCH};",
        f"the system's transparent huge pages: {setting.read_text().strip() if setting.exists() else 'none'}.",
        f"Milliseconds a step, the median of {TURNS} turns of {STEPS} steps; how many times as fast, the median of",
        "neighboring turns; page faults a step.",
        "",
        f"| architecture | {' | '.join(WAYS)} | times as fast | faults as torch is | faults with huge pages |",
        f"|{' --- |' * 6}",
    ]
    for architecture in ARCHITECTURES:
        lines.append(row(architecture))
        print(lines[-1], flush=True)
    measure.write("huge-pages", lines)


if __name__ == "__main__":
    main()
