"""The time of a training step on this machine with several settings of `compute`, measured in a second or two."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.core.weights import Params

FEW = 2  # samples of the first steps; BatchNorm needs two
LONG = 0.4  # seconds of a step; a longer step is timed on half the batch, or less
TURNS = 2


def step_seconds(
    build: Callable[[str], nn.Module],
    architecture: str,
    samples: LabeledDataset,
    classes: int,
    batch_size: int,
    computes: Sequence[Compute],
) -> list[float]:
    """Return the seconds of one step of plain local training with each of `computes`.

    The settings are timed in turns, and the shortest time of each is returned. Steps are those of the engine, on a
    client's `samples`, which are repeated if a batch needs more. If a step with a whole batch takes long, fewer samples
    are timed and the time is scaled; a trial with the first of `computes` decides how many. torch's generators and
    number of threads are not changed.
    """
    batch = max(2, batch_size)
    sizes = [batch // 2**halved for halved in range(batch.bit_length()) if halved == 0 or batch >> halved >= FEW]
    splits = {size: samples.take(torch.arange(size) % len(samples)) for size in sizes}
    clients = tuple(Client(size, architecture, own, own, own) for size, own in splits.items())
    training, threads = LocalTraining(epochs=1, batch_size=batch), torch.get_num_threads()
    settings = [
        Setting(clients, samples.inputs, 1, classes, build, training=training, compute=each) for each in computes
    ]
    try:
        return _least(list(map(Workspace, settings)), sizes)
    finally:
        torch.set_num_threads(threads)


def _least(spaces: list[Workspace], sizes: list[int]) -> list[float]:
    """Return the shortest time of a step of `sizes[0]` samples for each workspace, in seconds, from fewer if slow."""
    plain, size = spaces[0], sizes[-1]
    params = plain.setting.initial_models()[size]
    _seconds(plain, params, size)  # the first call is slower, because it makes kernels
    took = _seconds(plain, params, size)
    for larger in reversed(sizes[:-1]):  # doubled as long as a step is short
        if 2 * took > LONG:
            break
        size, took = larger, _seconds(plain, params, larger)
    for space in spaces[1:]:
        _seconds(space, params, size)  # as above
    steps = max(1, min(10, int(LONG / 4 / took)))
    turns = [[_seconds(space, params, size, steps) for space in spaces] for _ in range(TURNS)]
    return [min(seconds) * sizes[0] / size / steps for seconds in zip(*turns, strict=True)]


def clock_of(space: Workspace) -> Callable[[], float]:
    """Return the clock: CPU time of the thread if a CPU computes with one thread, else wall time."""
    alone = space.device.type == "cpu" and space.setting.compute.threads == 1
    return time.thread_time if alone else time.perf_counter


def _seconds(space: Workspace, params: Params, size: int, steps: int = 1) -> float:
    """Return the seconds that `steps` steps of the client with `size` samples take."""
    space.setting.claim()
    clock = clock_of(space)
    start = clock()
    operations.train(space, size, params, 1, steps)
    if space.device.type == "cuda":
        torch.cuda.synchronize(space.device)
    return clock() - start
