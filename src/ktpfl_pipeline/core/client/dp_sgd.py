"""Differentially private local training, DP-SGD by Opacus: the one file that knows Opacus, and only when asked to.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016, Algorithm 1,
https://arxiv.org/abs/1607.00133. Its ε is that of the accountant of Mironov, Talwar, Zhang: Rényi Differential Privacy
of the Sampled Gaussian Mechanism, 2019, https://arxiv.org/abs/1908.10530.

Protected is whether one image is among a client's training images, from whoever sees all that the client ever uploads:
its data meet its models in here and nowhere else, and what others do with the models afterwards costs nothing. How many
images a client has is taken for known. The noise comes from a named stream, as every draw: who knows the seed can take
it away, so this is a simulation of what privacy costs, and protects nobody.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.operations import Outcome, Workspace, seeded
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import Params, params_of

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Federation

AT_ONCE = 2**27
"""Numbers in the gradients of single images that are there at once, half a GiB in float32: memory, and the rounding."""


@dataclass(frozen=True)
class Privacy:
    """How much noise.

    Attributes:
        noise_multiplier: σ, standard deviation of the noise in units of C.
        max_grad_norm: C, what the L2 norm of one image's gradient is clipped to.
        delta: δ, the chance with which ε need not hold; well below one by the number of a client's images.
    """

    noise_multiplier: float
    max_grad_norm: float = 1.0
    delta: float = 1e-5


def refuse_impossible(
    architectures: Collection[str], build: Callable[[str], nn.Module], dtype: str, memory_format: str
) -> None:
    """Refuse what no private training is possible with.

    Args:
        architectures: of the clients.
        build: makes a module from an architecture's name.
        dtype: `Compute.dtype`.
        memory_format: `Compute.memory_format`.

    Raises:
        InputError: naming the architectures with BatchNorm, if bfloat16 or channels last is asked for, or without
            Opacus.
    """
    if find_spec("opacus") is None:
        raise InputError(
            "training.privacy needs Opacus, which is not installed: pip install '.[privacy]', or set it to null."
        )
    if dtype == "bfloat16":
        raise InputError(
            "compute.dtype is bfloat16; with training.privacy gradients of single images are taken in float32 or "
            "float64: choose one of these, or set training.privacy to null."
        )
    if memory_format == "channels_last":
        raise InputError(
            "compute.memory_format is channels_last, in which Opacus 1.6 computes other gradients of convolutions than "
            "they have: choose contiguous, or set training.privacy to null."
        )
    with torch.device("meta"):  # no weights are made, and nothing is drawn
        built = {name: build(name) for name in architectures}
    mixing = [name for name, module in built.items() if any(isinstance(part, _BatchNorm) for part in module.modules())]
    if mixing:
        raise InputError(
            f"architectures has {', '.join(mixing)} with BatchNorm, whose statistics mix the images of a batch, so "
            "that no image has a gradient of its own, which training.privacy would clip: take architectures without "
            "it, such as lenet, or set training.privacy to null."
        )


def check(fed: "Federation", privacy: Privacy) -> None:
    """Refuse a federation with which private training is impossible or means nothing; see `refuse_impossible`."""
    architectures = [client.architecture for client in fed.clients]
    refuse_impossible(architectures, fed.build, fed.compute.dtype, fed.compute.memory_format)
    import opacus  # noqa: F401  # takes seconds, and workers that are forked later have it

    most = max(len(client.train) for client in fed.clients)
    if privacy.delta >= 1 / most:
        raise InputError(
            f"training.privacy.delta is {privacy.delta} and a client has {most} training images; at 1/{most} a random "
            "one of them could be published: set it well below."
        )


def train(space: Workspace, n: int, params: Params, t: int) -> Outcome[Params]:
    """Run DP-SGD on client n's cross-entropy for E epochs; return its new weights and the last epoch's mean loss.

    As `local.train`, but for each step every image is drawn by itself (Poisson sampling, which the accountant takes
    for granted), so that an epoch is one only in expectation.
    """
    from opacus.grad_sample import GradSampleHooks
    from opacus.optimizers import DPOptimizer

    fed, samples = space.fed, space.split(n, "train")
    settings, privacy = fed.training, fed.training.privacy
    assert privacy is not None
    module = space.module(n, params).train()
    steps, share = sampling(len(samples), settings.batch_size)
    choice = fed.stream("private sampling", t, n)
    hooks = GradSampleHooks(module, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), settings.learning_rate),
        noise_multiplier=privacy.noise_multiplier,
        max_grad_norm=privacy.max_grad_norm,
        expected_batch_size=share * len(samples),
        generator=torch.Generator(space.device).manual_seed(rng.derive(fed.seed, "privacy noise", t, n)),
    )

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(module(space.pixels(samples.images[batch])), samples.labels[batch], reduction="sum")

    total, seen = torch.zeros((), device=space.device, dtype=torch.float64), 0
    try:
        with seeded(rng.derive(fed.seed, "dropout", t, n), space.device), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook")  # images need no gradient
            for _ in range(settings.epochs):
                total.zero_()
                seen = 0
                for batch in poisson(len(samples), steps, share, choice):
                    total += step(optimizer, loss, batch.to(space.device))
                    seen += len(batch)
    finally:
        hooks.cleanup()
    return Outcome(params_of(module), float(total) / max(seen, 1))


def step(optimizer: Any, loss: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """Take one step w ← w - η (Σ_i clip(g_i, C) + N(0, σ²C²)) / (q D_n); return the sum of the losses.

    Gradients of many images do not fit the memory at once: they are clipped and added up a few at a time.

    Args:
        optimizer: Opacus's, of the parameters on which it has its hooks.
        loss: the sum over the images at the given indices.
        batch: (b,) indices; none is a step of noise alone.
    """
    parts = torch.split(batch, max(1, AT_ONCE // sum(parameter.numel() for parameter in optimizer.params)))
    total = torch.zeros((), device=batch.device, dtype=torch.float64)
    for place, part in enumerate(parts, start=1):
        if len(part):
            value = loss(part)
            value.backward()  # type: ignore[no-untyped-call]
            total += value.detach()
        else:
            for parameter in optimizer.params:
                parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)
        optimizer.signal_skip_step(place < len(parts))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total


def sampling(samples: int, batch_size: int) -> tuple[int, float]:
    """Return how many steps an epoch has, as many as without privacy, and q, the chance of an image in each."""
    steps = math.ceil(samples / batch_size)
    return steps, 1 / steps


def poisson(samples: int, steps: int, share: float, stream: torch.Generator) -> Iterator[Tensor]:
    """Yield the indices of each step's images, (b,): every image with the chance `share`, whatever the others do."""
    for _ in range(steps):
        yield (torch.rand(samples, generator=stream, dtype=torch.float64) < share).nonzero().squeeze(1)


def spent(fed: "Federation", present: Iterable[Collection[int]]) -> list[float]:
    """Return each client's ε after some rounds, in the order of the clients; 0 for one that never trained.

    Args:
        fed: the federation, with `Privacy`.
        present: of each round, the ids of the clients that trained.
    """
    settings, privacy = fed.training, fed.training.privacy
    assert privacy is not None
    rounds = list(present)
    found = []
    for client in fed.clients:
        steps, share = sampling(len(client.train), settings.batch_size)
        taken = sum(client.id in those for those in rounds) * settings.epochs * steps
        found.append(epsilon(privacy, share, taken))
    return found


@cache
def epsilon(privacy: Privacy, share: float, steps: int) -> float:
    """Return ε of so many steps: the smallest that an order of Rényi privacy gives for δ, by Opacus.

    Args:
        privacy: σ and δ.
        share: q, the chance of an image in a step.
        steps: how many.
    """
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
    """Return the Rényi divergence bound of one step at each order; those of several steps add up."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    return compute_rdp(q=share, noise_multiplier=noise_multiplier, steps=1, orders=RDPAccountant.DEFAULT_ALPHAS)
