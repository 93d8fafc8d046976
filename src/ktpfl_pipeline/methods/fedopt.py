"""FedAdam, FedYogi and FedAdagrad: FedAvg whose server takes a step of an adaptive optimizer in place of the average.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021, Algorithm 2,
https://arxiv.org/abs/2003.00295. The paper's symbols:

    x    state.model     the global model
    Δ    change          the average change of the cohort's models in a round, (d,)
    m    state.momentum  the momentum of Δ, (d,); zero before the first round
    v    state.squares   the running average of Δ², or with FedAdagrad their sum, (d,); τ² before the first round
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.weights import vector_of, with_vector


@dataclass(frozen=True, eq=False)
class FedOptState(SharedState):
    """The state between rounds: x, and m and v in float64."""

    momentum: Tensor
    squares: Tensor


@dataclass(frozen=True)
class FedOpt(Shared):
    """FedOpt (Reddi et al., 2021): the average change of the clients is a gradient for the server's adaptive optimizer.

    Attributes:
        optimizer: the rule for v: ``adam``, ``yogi`` or ``adagrad``.
        server_rate: η, the step of the server; 0.01, and 0.1 with FedAdagrad, in Flower's repetition of the paper's
            experiments on CIFAR-10. Statistics of BatchNorm are always averages.
        beta1: β₁, the share of m that stays in a round; 0.9 in the paper, 0 with FedAdagrad.
        beta2: β₂, the same for v; 0.99 in the paper. FedAdagrad does not use it.
        tau: τ, which is added to √v; the larger it is, the less steps are adapted. 0.001 in the paper.
    """

    title = "FedOpt"
    covered = True

    optimizer: Literal["adam", "yogi", "adagrad"] = "adam"
    server_rate: Annotated[float, Gt(0)] = 0.01
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.99
    tau: Annotated[float, Gt(0)] = 0.001

    def init(self, fed: Federation) -> FedOptState:
        """Start from the initial model, with m = 0 and v = τ²."""
        model = fed.initial_model(fed.architecture)
        none = torch.zeros_like(vector_of(model, fed.trained_names), dtype=torch.float64)
        return FedOptState(model, none, none + self.tau**2)

    def round(self, state: FedOptState, cohort: list[int], t: int, fed: Federation) -> tuple[FedOptState, RoundReport]:
        """Send x, train it, and step by the changes' average by numbers of samples, as in the paper's experiments."""
        names = fed.trained_names
        trained = fed.train(dict.fromkeys(cohort, state.model), t)
        model, x = fed.average(trained), vector_of(state.model, names)
        change = vector_of(model, names).double() - x.double()
        m = self.beta1 * state.momentum + (1 - self.beta1) * change
        v = self.second_moment(state.squares, change.square())
        end = x.double() + self.server_rate * m / (v.sqrt() + self.tau)
        after = FedOptState(with_vector(model, names, end.to(x)), m, v)
        return after, RoundReport(trained, exchange.both_ways(trained))

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        """Return v after a round with Δ² = `square`."""
        if self.optimizer == "adagrad":
            return v + square
        if self.optimizer == "yogi":
            return v - (1 - self.beta2) * square * (v - square).sign()
        return self.beta2 * v + (1 - self.beta2) * square
