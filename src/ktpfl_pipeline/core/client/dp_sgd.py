"""Differentially private local training: DP-SGD by Opacus, which is imported only when needed.

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy, CCS 2016, Algorithm 1,
https://arxiv.org/abs/1607.00133. `core/privacy.py` computes the ε.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import operations, sgd
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.privacy import sampling, single_gradients
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, params_of, trained

AT_ONCE = 2**27
"""Entries of per-sample gradients in memory at once, 0.5 GiB in float32.

The value affects memory and, for a batch of more than one part, rounding and the draws of augmentation and dropout.
"""


def train(space: Workspace, n: int, params: Params, t: int) -> Outcome[Params]:
    """Run DP-SGD on client n's cross-entropy for E epochs; the recipe's optimizer takes the private gradients.

    This is like `operations.train`, but each step draws every sample independently (Poisson sampling, which the
    accountant assumes). So an epoch uses each sample once only in expectation.
    """
    from opacus.optimizers import DPOptimizer

    setting, own = space.setting, PrivateSamples(space, n, t)
    settings, privacy = setting.training_of(n), setting.training.privacy
    assert privacy is not None
    module = space.module(n, params).train()
    steps, share = sampling(len(own), settings.batch_size)
    choice = setting.stream("private sampling", t, n)
    rate = settings.rate(t, setting.rounds)
    start = space.take_state()
    steps_by = sgd.make(trained(module), settings, rate, start)
    optimizer = DPOptimizer(
        steps_by,
        noise_multiplier=privacy.noise_multiplier,
        max_grad_norm=privacy.max_grad_norm,
        expected_batch_size=share * len(own),
        generator=torch.Generator(space.device).manual_seed(rng.derive(setting.seed, "privacy noise", t, n)),
    )

    def loss(batch: Tensor) -> Tensor:
        return own.loss(module(own.inputs(batch)), batch, reduction="sum")

    total, seen = torch.zeros((), device=space.device, dtype=torch.float64), 0
    counted = Counter[str]()
    with rng.seeded(rng.derive(setting.seed, "dropout", t, n), space.device), single_gradients(module):
        for _ in range(settings.epochs):
            total.zero_()
            seen = 0
            for batch in poisson(len(own), steps, share, choice, space.device):
                total += step(optimizer, loss, batch)
                seen += len(batch)
                counted += space.counted([module], len(batch))
    state = None if start is None else sgd.state_of(steps_by)
    return Outcome(params_of(module), total / max(seen, 1), samples=counted, optimizer_state=state)


COVERED: frozenset[Callable[..., Any]] = frozenset(
    (train, operations.distill, operations.logits, operations.cross_logits, operations.evaluate, operations.own_logits)
)
"""The client operations that private training allows: `train`, whose use of private samples ε covers; operations on
public samples; and evaluations, whose results only judge a run."""


def step(optimizer: Any, loss: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
    """Take one step w ← w - η (Σ_i clip(g_i, C) + N(0, σ²C²)) / (q D_n); return the sum of the losses.

    Per-sample gradients of a large batch do not fit in memory: they are clipped and summed in parts. `optimizer`
    is Opacus's, for parameters with Opacus's hooks; `loss` returns the sum over the samples at the given indices. An
    empty `batch`, (b,), gives a step of noise only.
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


def poisson(
    samples: int, steps: int, share: float, stream: torch.Generator, device: torch.device
) -> tuple[Tensor, ...]:
    """Return the indices of each step's samples, (b,): each of the `samples` has the chance q = `share` to be drawn.

    All indices are sent to `device` at once, as in `sgd.batches`.
    """
    chances = (torch.rand(samples, generator=stream, dtype=torch.float64) for _ in range(steps))
    drawn = [(chance < share).nonzero().squeeze(1) for chance in chances]
    return torch.split(sent(torch.cat(drawn), device), [len(batch) for batch in drawn])
