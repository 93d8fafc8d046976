"""Kernel launches of a training step, counted on the emulated GPU.

A launch is an operation that torch sends to a device to compute. An operation on many tensors (foreach) is one launch;
views and allocations are none. The kernels that a library launches for an operation are not counted.
"""

from typing import Any

import pretend
import torch

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.models import build


def launches(architecture: str, **compute: Any) -> int:
    """Return the launches of one step of a client's local training, inside the context of the emulated GPU."""

    def made(name: str) -> torch.nn.Module:
        return build(name, (3, 16, 16), 4)

    samples = LabeledDataset(torch.zeros(4, 3, 16, 16, dtype=torch.uint8), torch.arange(4))
    fed = Federation(
        clients=(Client(0, architecture, samples, samples, samples),),
        public=samples.inputs,
        public_batch_size=1,
        classes=4,
        build=made,
        training=LocalTraining(epochs=1, batch_size=4),
        compute=Compute(pretend.DEVICE, **compute),
        executor=SerialExecutor(),
    )
    models, counted = fed.initial_models(), []
    for batch_size in (4, 4, 2):  # first data and modules are copied; then one step, then two
        object.__setattr__(fed, "training", LocalTraining(epochs=1, batch_size=batch_size))
        with pretend.recorded() as seen:
            fed.train(models, 1)
        counted.append(seen.launches)
    return int(counted[2] - counted[1])
