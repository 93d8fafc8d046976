"""How long a training step takes on this machine in several arithmetics, measured in turns for a second or two.

A slow precision is not measured to its end. A step that takes several times as long as the first precision's is stopped
at the next layer. Its time is estimated from the layers that it reached.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.core.weights import Params

FEW = 2  # samples of the first steps, which show what is hopeless; BatchNorm needs two
LONG = 0.4  # seconds of a step; a longer one is timed on half the batch, or half of that
TURNS = 2
HOPELESS = 3.0  # times as long as the first arithmetic: such a step is stopped, and not timed again
SLACK = 0.2  # seconds more, for kernels that are made
logger = logging.getLogger(__name__)


class Stopped(Exception):
    """A step took too long."""


def step_seconds(
    build: Callable[[str], nn.Module],
    architecture: str,
    like: Tensor,
    classes: int,
    batch_size: int,
    computes: Sequence[Compute],
) -> list[float]:
    """Return the seconds of one step of plain local training in each of `computes`, the least of some turns.

    Steps are the engine's own, on drawn inputs. Where a whole batch takes long, a part of it is timed; times are then
    in proportion. What was stopped is logged. Neither torch's generators nor its number of threads are changed.

    Args:
        build: makes a module from an architecture's name.
        architecture: the name.
        like: (M, ...), inputs of the shape and kind that are drawn.
        classes: K.
        batch_size: samples of a step.
        computes: devices, dtypes and memory formats; the first says how long the others may take.
    """
    draws, batch = torch.Generator().manual_seed(0), max(2, batch_size)
    inputs = kinds.of(like).random_like(like, batch, draws)
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
    (plain, *others), size = spaces, sizes[-1]
    params = plain.setting.initial_models()[size]
    _marks(plain, params, size)  # makes kernels
    marks = _marks(plain, params, size)
    behind = {space: ratio for space in others if (ratio := _hopeless(space, params, size, marks))}
    for larger in reversed(sizes[:-1]):  # twice as many, while a step of these is short
        if 2 * marks[-1] > LONG:
            break
        size, marks = larger, _marks(plain, params, larger)
    steps = max(1, min(10, int(LONG / 4 / marks[-1])))
    found = dict.fromkeys(spaces, math.inf)
    for _ in range(TURNS if 2 * marks[-1] < LONG else 1):
        marks = _marks(plain, params, size, steps)
        found[plain] = min(found[plain], marks[-1])
        for space in others:
            if space not in behind:
                own = _marks(space, params, size, steps, marks)
                if len(own) < len(marks):
                    behind[space] = own[-1] / marks[len(own) - 1]
                found[space] = min(found[space], own[-1])
    for space, ratio in behind.items():
        found[space] = ratio * found[plain]
        logger.info(
            "The trial of %s in %s %s was stopped, as the layers that it came to took %.1f times as long as in %s: "
            "its time is estimated from them.",
            *(space.setting.clients[0].architecture, space.setting.compute.dtype, space.setting.compute.memory_format),
            *(ratio, "the plainest arithmetic"),
        )
    return [seconds * sizes[0] / size / steps for seconds in found.values()]


def clock_of(space: Workspace) -> Callable[[], float]:
    """Return the clock: the seconds that the thread computes, where it is one on a CPU, however busy that is."""
    alone = space.device.type == "cpu" and space.setting.compute.threads == 1
    return time.thread_time if alone else time.perf_counter


def _hopeless(space: Workspace, params: Params, size: int, plain: list[float]) -> float | None:
    """Return how many times as long as `plain` a step takes that is stopped; None where it can be done.

    It is tried again as long as it gets further: layers that were reached have their kernels then.
    """
    reached = 0
    while len(marks := _marks(space, params, size, plain=plain)) > reached:
        if len(marks) == len(plain):
            return None
        reached = len(marks)
    return marks[-1] / plain[len(marks) - 1]


def _marks(space: Workspace, params: Params, size: int, steps: int = 1, plain: Sequence[float] = ()) -> list[float]:
    """Return the seconds after which each layer's output, and its gradient, was there, and at last all `steps`.

    Of the client with `size` samples. On a CPU it is stopped at the layer where it is `HOPELESS` compared with `plain`,
    the marks of the first arithmetic: the marks of all later layers are missing.
    """
    space.setting.claim()
    module, marks = space.module(size, params), list[float]()
    here = space.device.type == "cpu"  # a GPU has not finished yet
    clock = clock_of(space)

    def mark(*_: object) -> None:
        marks.append(clock() - start)
        if plain and marks[-1] > HOPELESS * plain[len(marks) - 1] + SLACK:
            raise Stopped

    def passed(_: nn.Module, inputs: object, output: object) -> None:
        mark()
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(mark)  # type: ignore[no-untyped-call]

    layers = [part for part in module.modules() if here and not any(part.children())]
    hooks = [part.register_forward_hook(passed) for part in layers]
    start = clock()
    try:
        operations.train(space, size, params, 1, steps)
        if not here:
            torch.cuda.synchronize(space.device)
        marks.append(clock() - start)
    except Stopped:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return marks
