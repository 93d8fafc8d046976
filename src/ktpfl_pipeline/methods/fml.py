"""FML: each client's own model and its copy of a small shared model learn from each other; the copies are averaged.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: Federated Mutual Learning, 2020, https://arxiv.org/abs/2006.16765
Mutual learning: Zhang, Xiang, Hospedales, Lu: Deep Mutual Learning, CVPR 2018, https://arxiv.org/abs/1706.00384
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import CommonState, Personal, RoundReport, SmallCommon
from ktpfl_pipeline.core.weights import Params, params_of, select
from ktpfl_pipeline.methods.shared import mutual


@dataclass(frozen=True)
class FML(SmallCommon, Personal):
    """FML (Shen et al., 2020): a small shared model carries knowledge between models of any architecture.

    Attributes:
        alpha: α, the weight of the cross-entropy in the own model's loss. The divergence from the shared model has the
            weight 1 - α. 0.5 is usual.
        beta: β, the weight of the cross-entropy in the shared model's loss. The divergence from the own model has the
            weight 1 - β.
    """

    title = "FML"
    exchanges = frozenset({"parameters"})

    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.5
    beta: Annotated[float, Interval(ge=0, le=1)] = 0.5

    def init(self, fed: Federation) -> CommonState:
        """Start from the common initial models."""
        return CommonState(fed.initial_models(), fed.initial_model(self.architecture(fed)))

    def round(self, state: CommonState, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Send the shared model, train both models on each other, and average the copies by numbers of samples."""
        pairs = select(state.models, cohort), dict.fromkeys(cohort, state.common)
        trained, copies = fed.train_together(train_pair, pairs, t, self, self.architecture(fed))
        after = CommonState({**state.models, **trained}, fed.average(copies))
        return after, RoundReport(trained, exchange.both_ways(copies))


def train_pair(
    space: Workspace, n: int, own: Params, common: Params, t: int, method: FML, architecture: str
) -> Outcome[tuple[Params, Params]]:
    """Train both models on the same batches of client n's data for E epochs; return both.

    The own model minimizes α·CE + (1 - α)·KL(shared ‖ own). The shared model minimizes β·CE + (1 - β)·KL(own ‖ shared).
    With α = 1 the training of the own model equals local-only training bit for bit.

    Args:
        own: the weights of the client's own model.
        common: the weights of the shared model.
        method: provides α and β.
        architecture: the architecture of the shared model.
    """
    samples, alpha, beta = PrivateSamples(space, n, t), method.alpha, method.beta
    module, companion = space.module(n, own).train(), space.module(architecture, common, "common").train()
    of = mutual.losses(space, n, t, samples, module, companion)

    def loss(batch: Tensor) -> Tensor:
        mine, theirs, my_gap, their_gap, *_ = of(batch)
        return alpha * mine + (1.0 - alpha) * my_gap + beta * theirs + (1.0 - beta) * their_gap

    outcome = samples.descend(torch.nn.ModuleList([module, companion]), loss)
    return outcome.giving((params_of(module), params_of(companion)))
