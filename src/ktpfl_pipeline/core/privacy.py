"""Example-level (ε, δ)-differential privacy of local training: the conditions, per-sample gradients, and the ε spent.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016,
https://arxiv.org/abs/1607.00133. ε is that of the accountant of Mironov, Talwar, Zhang: Rényi Differential Privacy of
the Sampled Gaussian Mechanism, 2019, https://arxiv.org/abs/1908.10530, as Opacus has it.

The guarantee holds against an observer of everything that a client ever uploads. It covers whether one sample is in the
client's training set; the number of the client's samples is assumed to be known. Noise is drawn from a named stream, so
a person who knows the seed can remove it. This simulates the cost of privacy, and does not protect real data.
"""

import math
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core import kinds, model_trial, rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.errors import InputError, check_installed, plural
from ktpfl_pipeline.core.settings import Compute, Privacy

Builder = Callable[[str], nn.Module]
WITHOUT_IT = "set training.privacy to null"
_KNOWN: WeakKeyDictionary[Builder, dict[tuple[str, Shape], str]] = WeakKeyDictionary()
"""Results of `hindrance`, by builder, architecture and shape."""

MIXES = (
    "whose logits of a sample depend on the other samples of its batch in training mode, so that no ε would hold: "
    "compute each sample by itself, without statistics of the batch"
)
"""Why a model is excluded whose own code mixes the samples of a batch."""
EXCLUDED = {
    "bfloat16": "compute.dtype is bfloat16, but training.privacy computes the gradient of each sample in float32 or "
    "float64: choose one of these",
    "channels_last": "compute.memory_format is channels_last, in which Opacus 1.6 computes wrong gradients of "
    "convolutions: choose contiguous",
}
"""The dtypes and memory formats that private training does not support, each with the reason."""


def check_possible(
    architectures: Collection[str], build: Builder, shape: Shape, kind: kinds.Kind, compute: Compute
) -> None:
    """Check that private training is possible with these architectures, and with this dtype and memory format.

    `shape` and `kind` describe the inputs. Raises InputError that names what is not supported, such as architectures
    with BatchNorm.
    """
    check_installed("training.privacy", "opacus", otherwise=WITHOUT_IT)
    for given in (compute.dtype, *[compute.memory_format] * kind.pixels):  # only pixels have channels
        if given in EXCLUDED:
            raise InputError(f"{EXCLUDED[given]}, or {WITHOUT_IT}.")
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(architectures):
        found.setdefault(hindrance(build, name, shape, kind), []).append(name)
    for reason, names in found.items():
        if reason:
            raise InputError(f"architectures has {', '.join(names)} {reason}, or {WITHOUT_IT}.")


def hindrance(build: Builder, architecture: str, shape: Shape, kind: kinds.Kind) -> str:
    """Return why an architecture does not support private training, and what to use; empty if the architecture does.

    A model is tried once per process. The state of torch's global generator does not change.
    """
    known = _KNOWN.setdefault(build, {})
    if (architecture, shape) not in known:
        with rng.seeded(0):
            with torch.device("meta"):  # the device has shapes and no values
                outline = build(architecture)
            known[architecture, shape] = (
                _layers_without(outline)
                or _failure(outline, lambda: build(architecture), kind.blank(shape, 2))
                or (MIXES if model_trial.mixes(lambda: build(architecture), shape, kind) else "")
            )
    return known[architecture, shape]


def _layers_without(module: nn.Module) -> str:
    """Return which layers of a module are known to have no per-sample gradients; empty if no layer is."""

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
    """Return why per-sample gradients on `inputs` cannot be computed; empty if they can.

    First `outline` is tried on the device ``meta``, where nothing is computed. If that fails, `build` makes a model for
    the CPU, and it is tried there: some models compute with values, and ``meta`` has no values.
    """
    with suppress(Exception):  # any layer, and Opacus, may raise any error
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
    """Return which parameter gets no per-sample gradient; empty if all trained parameters get one."""
    with single_gradients(module.train()), torch.enable_grad():
        module(inputs).sum().backward()
        for name, parameter in module.named_parameters():
            found = getattr(parameter, "grad_sample", None)
            if parameter.requires_grad and (not isinstance(found, Tensor) or len(found) != len(inputs)):
                return f"with {name}, of which Opacus finds no gradient of a single sample: take other architectures"
    return ""


@contextmanager
def single_gradients(module: nn.Module) -> Iterator[None]:
    """Make each backward pass inside the block store per-sample gradients in `grad_sample` of each parameter.

    The loss must be a sum over samples. Inside the block, in-place activations work out of place, because torch does
    not let them write to the output of a layer with Opacus's hooks. Their values are the same.
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
    """Check that δ < 1 / `samples`, the largest client's number of training samples; else raise InputError."""
    import opacus  # noqa: F401  # imported here, which takes seconds, so that later forked workers have it

    if privacy.delta >= 1 / samples:
        raise InputError(
            f"training.privacy.delta is {privacy.delta} and a client has {plural(samples, 'training sample')}; at "
            f"1/{samples} a random one of them could be published: set it well below."
        )


def sampling(samples: int, batch_size: int) -> tuple[int, float]:
    """Return the number of steps per epoch, as without privacy, and q, the probability of a sample to be in a step."""
    steps = math.ceil(samples / batch_size)
    return steps, 1 / steps


def spent(privacy: Privacy, samples: Sequence[int], epochs: Sequence[int], batch_size: int) -> list[float]:
    """Return each client's ε after `epochs` of local training in total; 0 for a client that never trained."""
    found = []
    for size, taken in zip(samples, epochs, strict=True):
        steps, share = sampling(size, batch_size)
        found.append(epsilon(privacy, share, taken * steps))
    return found


def epsilon(privacy: Privacy, share: float, steps: int) -> float:
    """Return ε after `steps` steps with q = `share`; see `composed`."""
    return composed(privacy.delta, ((privacy.noise_multiplier, share, steps),))


@cache
def composed(delta: float, trainings: tuple[tuple[float, float, int], ...]) -> float:
    """Return ε after several trainings on the same samples: the smallest over the orders of Rényi DP, by Opacus.

    The Rényi divergence bounds of the trainings add up (Mironov 2017, Proposition 1).

    Args:
        delta: δ.
        trainings: noise multiplier, probability q of a sample to be in a step, and number of steps of each training.
    """
    trainings = tuple(each for each in trainings if each[2])
    if not trainings:
        return 0.0
    if any(noise == 0 for noise, *_ in trainings):
        return math.inf
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import get_privacy_spent

    total = sum(_of_one_step(noise, share) * steps for noise, share, steps in trainings)
    with warnings.catch_warnings():  # Opacus warns if the best order is an end: ε is valid, maybe not tight
        warnings.simplefilter("ignore")
        found, _ = get_privacy_spent(orders=RDPAccountant.DEFAULT_ALPHAS, rdp=total, delta=delta)
    return max(0.0, float(found))


@cache
def _of_one_step(noise_multiplier: float, share: float) -> Any:
    """Return the Rényi divergence bound of one step at each order; the bounds of several steps add up."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    return compute_rdp(q=share, noise_multiplier=noise_multiplier, steps=1, orders=RDPAccountant.DEFAULT_ALPHAS)
