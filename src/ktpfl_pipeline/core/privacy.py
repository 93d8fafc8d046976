"""Example-level (ε, δ)-differential privacy of local training: the noise, when it is possible, and the ε that is spent.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016,
https://arxiv.org/abs/1607.00133. ε is that of the accountant of Mironov, Talwar, Zhang: Rényi Differential Privacy of
the Sampled Gaussian Mechanism, 2019, https://arxiv.org/abs/1908.10530, as Opacus has it.

The guarantee is against an observer of all that a client ever uploads, and covers whether one sample is among its
training samples; how many samples a client has is taken for known. Noise is drawn from a named stream, so whoever knows
the seed can remove it: this simulates what privacy costs; it protects no real data.
"""

import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core import kinds, rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Compute, Privacy

Builder = Callable[[str], nn.Module]
WITHOUT_IT = "or set training.privacy to null"
_KNOWN: WeakKeyDictionary[Builder, dict[tuple[str, Shape], str]] = WeakKeyDictionary()
"""What was found by `hindrance`, by what builds the models, by architecture and shape."""

EXCLUDED = {
    "bfloat16": "compute.dtype is bfloat16, but training.privacy computes the gradient of each sample in float32 or "
    "float64: choose one of these",
    "channels_last": "compute.memory_format is channels_last, in which Opacus 1.6 computes wrong gradients of "
    "convolutions: choose contiguous",
}
"""The dtypes and memory formats that private training does not go with, and why."""


def check_possible(
    architectures: Collection[str], build: Builder, shape: Shape, kind: kinds.Kind, compute: Compute
) -> None:
    """Check that private training is possible with these architectures, and with this precision and memory format.

    Inputs have this shape and kind. Raises InputError, which names what does not go with it, such as architectures with
    BatchNorm.
    """
    if find_spec("opacus") is None:
        raise InputError(
            f"training.privacy needs Opacus, which is not installed: pip install '.[privacy]', {WITHOUT_IT}."
        )
    for given in (compute.dtype, *[compute.memory_format] * kind.pixels):  # nothing else has channels
        if given in EXCLUDED:
            raise InputError(f"{EXCLUDED[given]}, {WITHOUT_IT}.")
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(architectures):
        found.setdefault(hindrance(build, name, shape, kind), []).append(name)
    for reason, names in found.items():
        if reason:
            raise InputError(f"architectures has {', '.join(names)} {reason}, {WITHOUT_IT}.")


def hindrance(build: Builder, architecture: str, shape: Shape, kind: kinds.Kind) -> str:
    """Return what in an architecture private training cannot be done with, and what to take; empty if it can be done.

    It is tried, once in a process; no draw of torch's global generator changes.
    """
    known = _KNOWN.setdefault(build, {})
    if (architecture, shape) not in known:
        with rng.seeded(0):
            with torch.device("meta"):  # which knows shapes and no numbers
                outline = build(architecture)
            known[architecture, shape] = _layers_without(outline) or _failure(
                outline, lambda: build(architecture), kind.blank(shape, 2)
            )
    return known[architecture, shape]


def _layers_without(module: nn.Module) -> str:
    """Return which layers of a module are known to give no gradients of single samples; empty without any."""

    def has(*kinds: type) -> bool:
        return any(isinstance(part, kinds) for part in module.modules())

    if has(_BatchNorm):
        return (
            "with BatchNorm, whose statistics mix the samples of a batch, but training.privacy needs the gradient of "
            "each sample: choose architectures without BatchNorm, such as lenet"
        )
    if has(nn.RNNBase, nn.MultiheadAttention):
        return (
            "with recurrent or attention layers of torch, in which Opacus finds no gradient of a single sample: choose "
            "architectures without them, such as cnn1d"
        )
    if getattr(module, "without_single_gradients", False):
        return (
            "of transformers, in which Opacus finds no gradient of a single sample for some layers: choose "
            "text_transformer, text_cnn or fasttext"
        )
    return ""


def _failure(outline: nn.Module, build: Callable[[], nn.Module], inputs: Tensor) -> str:
    """Return why gradients of single samples, of some `inputs`, fail; empty if they do not.

    `outline` is on the device ``meta``, which costs nothing. If it fails there, a model is built on the CPU and tried,
    because some models compute with numbers, which that device has not.
    """
    with suppress(Exception):  # of any layer, or of Opacus
        return _without_gradient(outline.to("meta"), inputs.to("meta"))
    try:
        with torch.device("cpu"):
            return _without_gradient(build().to("cpu"), inputs)
    except Exception as error:
        reason = textwrap.shorten(str(error).rstrip("."), 150, placeholder=" ...")
        return (
            f"on which Opacus fails to compute gradients of single samples ({type(error).__name__}: {reason}): take "
            "other architectures, such as lenet or mlp"
        )


def _without_gradient(module: nn.Module, inputs: Tensor) -> str:
    """Return which parameter gets no gradient of each input; empty if all of them do."""
    with single_gradients(module.train()), torch.enable_grad():
        module(inputs).sum().backward()
        for name, parameter in module.named_parameters():
            found = getattr(parameter, "grad_sample", None)
            if parameter.requires_grad and (not isinstance(found, Tensor) or len(found) != len(inputs)):
                return f"with {name}, of which Opacus finds no gradient of a single sample: take other architectures"
    return ""


@contextmanager
def single_gradients(module: nn.Module) -> Iterator[None]:
    """Let each backward pass inside the block leave gradients of single samples in its parameters' `grad_sample`.

    The loss is a sum over samples. Activations in place are not in place inside the block: torch does not let them
    write to what a layer with Opacus's hooks returned. Their values are the same.
    """
    from opacus.grad_sample import GradSampleHooks

    changed = [part for part in module.modules() if getattr(part, "inplace", False)]
    hooks = GradSampleHooks(module, loss_reduction="sum")
    for part in changed:
        part.inplace = False  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook")  # inputs need no gradient
            yield
    finally:
        for part in changed:
            part.inplace = True  # type: ignore[assignment]
        hooks.cleanup()


def check_delta(privacy: Privacy, samples: int) -> None:
    """Check that δ is below 1 / samples, of the largest client's training samples; else raise InputError."""
    import opacus  # noqa: F401  # now, as it takes seconds, so that workers that are forked later have it

    if privacy.delta >= 1 / samples:
        raise InputError(
            f"training.privacy.delta is {privacy.delta} and a client has {samples} training samples; at 1/{samples} a "
            "random one of them could be published: set it well below."
        )


def sampling(samples: int, batch_size: int) -> tuple[int, float]:
    """Return how many steps an epoch has, as many as without privacy, and q, the chance of a sample in each."""
    steps = math.ceil(samples / batch_size)
    return steps, 1 / steps


def spent(privacy: Privacy, samples: Sequence[int], epochs: Sequence[int], batch_size: int) -> list[float]:
    """Return each client's ε after this many `epochs` of local training in all; 0 for one that never trained."""
    found = []
    for size, taken in zip(samples, epochs, strict=True):
        steps, share = sampling(size, batch_size)
        found.append(epsilon(privacy, share, taken * steps))
    return found


@cache
def epsilon(privacy: Privacy, share: float, steps: int) -> float:
    """Return ε of some steps with q = `share`: the smallest that an order of Rényi privacy gives for δ, by Opacus."""
    if steps == 0:
        return 0.0
    if privacy.noise_multiplier == 0:
        return math.inf
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import get_privacy_spent

    orders = RDPAccountant.DEFAULT_ALPHAS
    with warnings.catch_warnings():  # that the first or last order is the best: it holds, another might be tighter
        warnings.simplefilter("ignore")
        found, _ = get_privacy_spent(
            orders=orders, rdp=_of_one_step(privacy.noise_multiplier, share) * steps, delta=privacy.delta
        )
    return max(0.0, float(found))


@cache
def _of_one_step(noise_multiplier: float, share: float) -> Any:
    """Return the Rényi divergence bound of one step at each order; the bounds of several steps add up."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    return compute_rdp(q=share, noise_multiplier=noise_multiplier, steps=1, orders=RDPAccountant.DEFAULT_ALPHAS)
