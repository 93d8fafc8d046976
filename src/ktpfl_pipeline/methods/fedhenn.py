"""FedHeNN: clients pull the similarities between public samples, as their features show them, toward all clients' mean.

Makhija, Han, Ho, Ghosh: Architecture Agnostic Federated Learning for Neural Networks, ICML 2022, Algorithm 1,
https://arxiv.org/abs/2202.07757. Similarity of kernels is CKA: Kornblith, Norouzi, Lee, Hinton: Similarity of Neural
Network Representations Revisited, ICML 2019, https://arxiv.org/abs/1905.00414
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace, batch_norm
from ktpfl_pipeline.core.client.features import features, seen_of_public
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, params_of, select


@dataclass(frozen=True)
class FedHeNN(Personal):
    """FedHeNN (Makhija et al., 2022): features of different widths are compared by their kernels on public samples.

    Attributes:
        coupling: η₀; in round t the weight of 1 - CKA is η₀ √(t - 1), as in the authors' code, which has 0.01.
        samples: the largest number of public samples that are aligned, each in every step; 1,000 in the authors' code.
    """

    title = "FedHeNN"
    exchanges = frozenset({"similarities"})
    needs_public = True
    needs_head = "layer"

    coupling: Annotated[float, Ge(0)] = 0.01
    samples: Annotated[int, Ge(2)] = 1000

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Average the kernels of the cohort's models on public samples, and train toward the average."""
        models, batch = select(state.models, cohort), sent(fed.public_batch(t)[: self.samples], fed.device)
        kernels = fed.run("predict", kernel_of, {n: (params, batch) for n, params in models.items()})
        check_finite("similarities", kernels)
        mean = torch.stack([*kernels.values()]).double().mean(dim=0)  # K̄, (B, B)
        weight = self.coupling * math.sqrt(max(t - 1, 0))
        trained = fed.train_with(train_client, models, t, mean, batch, weight)
        size, public = 2 * len(batch) * (len(batch) + 1), fed.public_bytes() * len(batch) // fed.public_batch_size
        traffic = Traffic(similarities_up=size, similarities_down=size, public_down=public)
        return PersonalState({**state.models, **trained}), RoundReport(trained, dict.fromkeys(cohort, traffic))


def train_client(
    space: Workspace, n: int, params: Params, t: int, kernel: Tensor, batch: Tensor, weight: float
) -> Outcome[Params]:
    """Train E epochs on CE + η·(1 - CKA(K̄, K)) over client n's data; K is of all public samples in each step.

    With η = 0 the training equals local training bit for bit. BatchNorm treats public samples as distillation does.
    """
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    cross_entropy, policy = own.cross_entropy(module), space.setting.distillation.batch_norm
    target, inputs = kernel.to(space.device, space.dtype), space.public(batch)
    takes_one = space.setting.facts(space.architecture(n)).takes_one

    counted = Counter[str]()

    def loss(part: Tensor) -> Tensor:
        fit = cross_entropy(part)
        if not weight:
            return fit
        counted.update(space.counted([module], len(inputs)))
        with features(space.head(n, module)[1]) as seen:
            with batch_norm.distilling(module, policy, len(inputs), takes_one):
                module(space.numbers(inputs))
            module.train()
        found = seen.pop()
        return fit + weight * (1.0 - cka(target, found @ found.T))

    outcome = own.descend(module, loss)
    return replace(outcome.giving(params_of(module)), samples=counted + Counter(outcome.samples))


def kernel_of(space: Workspace, n: int, params: Params, batch: Tensor) -> Outcome[Tensor]:
    """Return the inner products of client n's features of the public samples `batch`, (B, B), in eval mode."""
    found = seen_of_public(space, n, params, batch)
    return Outcome(found @ found.T)


def cka(one: Tensor, other: Tensor) -> Tensor:
    """Return the centered kernel alignment of two kernels, (B, B) each: the cosine of the centered kernels, ()."""
    a, b = (each - each.mean(dim=0) - each.mean(dim=1, keepdim=True) + each.mean() for each in (one, other))
    norms = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    found: Tensor = (a * b).sum() / norms.clamp_min(torch.finfo(a.dtype).tiny)
    return found
