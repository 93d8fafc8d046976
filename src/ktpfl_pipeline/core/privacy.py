"""Example-level (ε, δ)-differential privacy of local training: the noise, when it is possible, and the ε that is spent.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016,
https://arxiv.org/abs/1607.00133. ε is that of the accountant of Mironov, Talwar, Zhang: Rényi Differential Privacy of
the Sampled Gaussian Mechanism, 2019, https://arxiv.org/abs/1908.10530, as Opacus has it.

The guarantee is against an observer of all that a client ever uploads, and covers whether one sample is among its
training samples; how many samples a client has is taken for known. Noise is drawn from a named stream, so whoever knows
the seed can remove it: this simulates what privacy costs; it protects no real data.
"""

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.settings import Compute, Privacy


def check_possible(architectures: Collection[str], build: Callable[[str], nn.Module], compute: Compute) -> None:
    """Check that private training is possible with these architectures, and with this precision and memory format.

    Raises InputError, which names what does not go with it, such as architectures with BatchNorm.
    """
    with torch.device("meta"):  # no weights are made, and nothing is drawn
        built = {name: build(name) for name in architectures}

    def having(*kinds: type) -> list[str]:
        return [name for name, module in built.items() if any(isinstance(part, kinds) for part in module.modules())]

    mixing, unknown = having(_BatchNorm), having(nn.RNNBase, nn.MultiheadAttention)
    foreign = [name for name, module in built.items() if getattr(module, "without_single_gradients", False)]
    why = {
        "training.privacy needs Opacus, which is not installed: pip install '.[privacy]'": find_spec("opacus") is None,
        "compute.dtype is bfloat16; with training.privacy gradients of single samples are taken in float32 or float64: "
        "choose one of these": compute.dtype == "bfloat16",
        "compute.memory_format is channels_last, in which Opacus 1.6 computes other gradients of convolutions than "
        "they have: choose contiguous": compute.memory_format == "channels_last",
        f"architectures has {', '.join(mixing)} with BatchNorm, whose statistics mix the samples of a batch, so that "
        "none has a gradient of its own, which training.privacy would clip: take architectures without it, such as "
        "lenet": bool(mixing),
        f"architectures has {', '.join(unknown)} with recurrent or attention layers of torch, in which Opacus finds no "
        "gradient of a single sample: take architectures without them, such as cnn1d": bool(unknown),
        f"architectures has {', '.join(foreign)} of transformers, in which Opacus finds no gradient of a single sample "
        "for all layers: take text_transformer, text_cnn or fasttext": bool(foreign),
    }
    for reason, holds in why.items():
        if holds:
            raise InputError(f"{reason}, or set training.privacy to null.")


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
