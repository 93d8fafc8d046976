"""How long a training step takes on this machine in several arithmetics, measured in turns for a second or two."""

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.setting import Client, Compute, LocalTraining, Setting

FEW = 8  # samples: no batch is halved below
LONG = 0.4  # seconds of a step; a longer one is timed on half the batch, or half of that
TURNS = 2
HOPELESS = 3.0  # times as long as the first arithmetic, and it is not timed again


def step_seconds(
    build: Callable[[str], nn.Module],
    architecture: str,
    like: Tensor,
    classes: int,
    batch_size: int,
    computes: Sequence[Compute],
) -> list[float]:
    """Return the seconds of one step of plain local training in each of `computes`, the least of some turns.

    Steps are the engine's own, on drawn inputs. Where a whole batch takes long, a part of it is timed, and of what is
    far behind a few samples: times are then in proportion. Neither torch's generators nor its number of threads are
    changed.

    Args:
        build: makes a module from an architecture's name.
        architecture: the name.
        like: (M, ...), inputs of the shape and kind that are drawn: images in uint8, or features.
        classes: K.
        batch_size: samples of a step.
        computes: devices, dtypes and memory formats; the first says how long the others may take.
    """
    draws, batch = torch.Generator().manual_seed(0), max(2, batch_size)
    drawn = torch.randint(0, 256, (batch, *like.shape[1:]), generator=draws, dtype=torch.uint8)
    inputs = drawn / 127.5 - 1 if like.is_floating_point() else drawn
    samples = LabelledDataset(inputs, torch.arange(batch) % classes)
    sizes = [batch // 2**halved for halved in range(batch.bit_length()) if halved == 0 or batch >> halved >= FEW]
    splits = {size: samples.take(torch.arange(size)) for size in sizes}
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
    """Return for each workspace the least seconds of a step of `sizes[0]` samples, on as many of them as are quick."""
    few, size, each = sizes[-1], sizes[-1], list[float]()
    first = [_seconds(space, few) for space in spaces]  # makes kernels too
    for size in reversed(sizes):  # twice as many, while a step of these is short
        each.append(_seconds(spaces[0], size))
        if 2 * size * each[-1] > LONG:
            break
    steps = max(1, min(10, int(LONG / 4 / (size * each[-1]))))
    slow = max(LONG / few, HOPELESS * each[0])
    found = [math.inf if own > slow else _seconds(space, size) for own, space in zip(first, spaces, strict=True)]
    for _ in range(TURNS):
        for place, space in enumerate(spaces):
            if found[place] < HOPELESS * found[0]:
                found[place] = min(found[place], _seconds(space, size, steps))
    ratios = [seconds / each[0] for seconds in first]  # of few samples, for what is far behind
    return [sizes[0] * (ratio * found[0] if own == math.inf else own) for own, ratio in zip(found, ratios, strict=True)]


def _seconds(space: Workspace, size: int, steps: int = 1) -> float:
    """Return the seconds that a step of the client with `size` samples takes for each, the mean of so many `steps`."""
    space.setting.claim()
    params = space.setting.initial_models()[size]
    space.module(size, params)  # made before the clock starts
    start = time.perf_counter()
    operations.train(space, size, params, 1, steps)
    if space.device.type == "cuda":
        torch.cuda.synchronize(space.device)
    return (time.perf_counter() - start) / steps / size
