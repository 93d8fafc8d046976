"""The choices of `compute.memory_format: auto` and `compute.dtype: auto:bfloat16` on this machine, by architecture.

    python benchmarks/auto.py

writes benchmarks/results/<date>-auto.md: the trial's step times in milliseconds, and the duration of the trial.
"""

import math
import time
from functools import partial

import measure
import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.core.client.trial import step_seconds
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.settings import Compute, MemoryFormat
from ktpfl_pipeline.runs.arithmetic import Arithmetic, fastest

SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 128
ARCHITECTURES = ("lenet", "cnn", "cnn_bn", "mlp", "mcmahan_cnn", "alexnet", "resnet18", "shufflenet_v2")
ORDERS: tuple[MemoryFormat, ...] = ("contiguous", "channels_last")
WAYS = [Arithmetic(dtype, order) for dtype in measure.DTYPES for order in ORDERS]


def row(architecture: str) -> str:
    """Return one architecture's times and choices."""
    build = partial(models.build, shape=SHAPE, classes=CLASSES)
    computes = [Compute("auto", way.dtype, way.memory_format) for way in WAYS]
    images = torch.randint(0, 256, (BATCH, *SHAPE), dtype=torch.uint8)
    samples = LabeledDataset(images, torch.arange(BATCH) % CLASSES)
    start = time.process_time()
    times = dict(zip(WAYS, step_seconds(build, architecture, samples, CLASSES, BATCH, computes), strict=True))
    spent = time.process_time() - start
    chosen = [fastest(WAYS[:2], times).memory_format, str(fastest(WAYS, times))]
    slower = min((times[way] for way in WAYS[2:]), default=math.nan) / min(times[way] for way in WAYS[:2])
    cells = [f"{1e3 * seconds:.3g}" for seconds in times.values()]
    return f"| {' | '.join([architecture, *cells, *chosen, f'{slower:.1f}', f'{spent:.1f} s'])} |"


def main() -> None:
    """Measure, and write the table."""
    shape = " × ".join(map(str, SHAPE))
    lines = [
        f"# What auto chooses, {measure.today()}",
        "",
        f"{measure.hardware()}; one thread, images of {shape}, batches of {BATCH}; milliseconds a step, the least of",
        "some turns, where a batch takes long on a part of it. The last columns: the best of bfloat16 in units of the",
        "best of float32, and the CPU seconds of the trial.",
        "",
        f"| architecture | {' | '.join(map(str, WAYS))} | memory_format: auto | auto:bfloat16 | bfloat16 | trial |",
        f"|{' --- |' * (len(WAYS) + 5)}",
    ]
    for architecture in ARCHITECTURES:
        lines.append(row(architecture))
        print(lines[-1], flush=True)
    measure.write("auto", lines)


if __name__ == "__main__":
    main()
