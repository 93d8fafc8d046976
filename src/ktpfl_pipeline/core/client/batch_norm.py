"""BatchNorm policies: the statistics with which public samples are normalized.

Private samples are treated in the same way under every policy: local training uses mini-batches and updates the running
statistics, and evaluation uses the running statistics. For public samples `distillation.batch_norm` decides:

| policy            | predictions on public samples     | distillation normalizes with | running statistics after it   |
| ----------------- | --------------------------------- | ---------------------------- | ----------------------------- |
| `frozen`          | with the running statistics       | the running statistics       | as before                     |
| `train`           | with the running statistics       | those of the mini-batch      | moved toward public samples   |
| `domain_specific` | with statistics of public samples | those of the mini-batch      | as before                     |

``train`` is what KT-pFL's released code does. ``domain_specific`` keeps two sets of statistics per model: the running
statistics belong to private samples, and statistics of public samples serve public samples. As in AdaBN, the public
statistics are estimated by one pass over the public samples that the model is about to predict. Local training changes
the inputs of a layer, so statistics from an earlier round would not fit. The statistics never leave the operation, so
no method, executor or checkpoint has to store them.

A single public sample has no statistics. ``domain_specific`` then acts like ``frozen``, and so does ``train`` for a
model that cannot be trained on one sample. A round may have a single sample if others were not sent
(`knowledge.select`).

Li, Wang, Shi, Liu, Hou: Revisiting Batch Normalization for Practical Domain Adaptation, ICLR 2017 workshop,
https://arxiv.org/abs/1603.04779 (AdaBN). Chang, You, Seo, Kwak, Han: Domain-Specific Batch Normalization for
Unsupervised Domain Adaptation, CVPR 2019, https://arxiv.org/abs/1906.03950, which trains as `domain_specific` distills.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core.recipe import BatchNormPolicy
from ktpfl_pipeline.core.weights import is_frozen


def layers(module: nn.Module) -> list[_BatchNorm]:
    found = (part for part in module.modules() if isinstance(part, _BatchNorm) and part.track_running_stats)
    return [layer for layer in found if not is_frozen(layer)]


@contextmanager
def distilling(module: nn.Module, policy: BatchNormPolicy, samples: int, takes_one: bool) -> Iterator[None]:
    """Put a loaded module in a policy's mode; afterwards restore the statistics that the policy keeps.

    `samples` is the number of public samples; `takes_one` is whether the module can be trained on one.
    """
    if samples == 1 and (policy == "domain_specific" or not takes_one):
        policy = "frozen"
    module.train(policy != "frozen")
    with private_statistics(module) if policy == "domain_specific" else nullcontext():
        yield


@contextmanager
def private_statistics(module: nn.Module) -> Iterator[None]:
    """Restore a module's running statistics and counters to their values from before the block."""
    own = [buffer for layer in layers(module) for buffer in layer.buffers(recurse=False)]
    before = [buffer.clone() for buffer in own]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(own, before, strict=True):
                buffer.data.copy_(value)  # a backward pass to come may have saved the buffer, which it does not use


@contextmanager
def predicting(
    module: nn.Module, policy: BatchNormPolicy, inputs: Tensor, numbers: Callable[[Tensor], Tensor], size: int
) -> Iterator[None]:
    """Set a loaded module's BatchNorm statistics for predictions of public samples inside the block.

    With ``domain_specific`` these are statistics of the predicted samples; see `estimate`. With other policies, and
    with a single sample, the running statistics do not change.

    Args:
        module: the client's module.
        policy: the value of `distillation.batch_norm`.
        inputs: the raw samples that are predicted, (B, ...).
        numbers: converts raw samples to the inputs of a module.
        size: the number of samples that are normalized together, `distillation.batch_size`.
    """
    if policy != "domain_specific" or len(inputs) < 2 or not layers(module):
        yield
        return
    with private_statistics(module):
        estimate(module, inputs, numbers, size)
        yield


@torch.no_grad()
def estimate(module: nn.Module, inputs: Tensor, numbers: Callable[[Tensor], Tensor], size: int) -> None:
    """Set a module's running statistics to those of raw inputs, (B, ...) with B of at least 2, in one pass.

    The samples are split into ⌈B / `size`⌉ parts, but at most ⌊B / 2⌋, whose sizes differ by at most one. Within a part
    each layer normalizes with the part's own statistics. The running mean and variance become the means over all parts
    of a part's mean and unbiased variance. Only BatchNorm is in training mode, so dropout is off.
    """
    module.eval()
    own = layers(module)
    momenta = [layer.momentum for layer in own]
    for layer in own:
        layer.reset_running_stats()
        layer.train()
    try:
        parts = min(math.ceil(len(inputs) / size), len(inputs) // 2)  # one sample has no variance
        for number, part in enumerate(torch.tensor_split(inputs, max(1, parts)), 1):
            for layer in own:
                layer.momentum = 1.0 / number  # the mean over parts; with None torch would wait for the device
            module(numbers(part))
    finally:
        for layer, momentum in zip(own, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()
