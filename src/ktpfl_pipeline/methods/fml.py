"""FML: each client's own model and its copy of a small shared model learn from each other; the copies are averaged.

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu, Wu: Federated Mutual Learning, 2020, https://arxiv.org/abs/2006.16765
Mutual learning: Zhang, Xiang, Hospedales, Lu: Deep Mutual Learning, CVPR 2018, https://arxiv.org/abs/1706.00384
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import CommonState, Personal, RoundReport, SmallCommon
from ktpfl_pipeline.core.weights import select
from ktpfl_pipeline.methods.shared.mutual import Losses, train_pair


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
        trained, copies = fed.train_together(train_pair, pairs, t, self.architecture(fed), self.loss)
        after = CommonState({**state.models, **trained}, fed.average(copies))
        return after, RoundReport(trained, exchange.both_ways(copies))

    def loss(self, n: int, of: Losses) -> Tensor:
        """Return α·CE + (1 - α)·KL(shared ‖ own) of the own model, plus β·CE + (1 - β)·KL(own ‖ shared) of the shared.

        With α = 1 the training of the own model equals local-only training bit for bit.
        """
        own = self.alpha * of.own + (1.0 - self.alpha) * of.own_gap
        return own + self.beta * of.common + (1.0 - self.beta) * of.common_gap
