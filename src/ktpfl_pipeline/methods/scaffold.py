"""SCAFFOLD: FedAvg whose local steps are corrected by control variates, estimates of the clients' gradients.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML
2020, Algorithm 1, https://arxiv.org/abs/1910.06378. The paper's symbols:

    x    state.model     the global model
    c    state.control   the server's control variate, (d,)
    c_n  state.controls  the control variate of client n, (d,); zero before its first round
    y_n  trained         the model of client n after K local steps from x
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.weights import Models, average, vector_of, with_vector


@dataclass(frozen=True, eq=False)
class SCAFFOLDState(SharedState):
    """The state between rounds: x, c, and c_n of each client that took part."""

    control: Tensor
    controls: dict[int, Tensor]


@dataclass(frozen=True)
class SCAFFOLD(Shared):
    """SCAFFOLD (Karimireddy et al., 2020): a client replaces its part c_n of the gradient by that of all clients, c.

    Attributes:
        server_rate: η_g, the step of x toward the average of the clients' models; 1 in the paper's experiments.
            Statistics of BatchNorm are always averages.
    """

    title = "SCAFFOLD"
    own_step = True
    batches: ClassVar[int] = 1

    server_rate: Annotated[float, Interval(ge=0, le=2)] = 1.0

    def init(self, fed: Federation) -> SCAFFOLDState:
        """Start from the initial model, with c = 0."""
        model = fed.initial_model(fed.architecture)
        return SCAFFOLDState(model, torch.zeros_like(vector_of(model, fed.trained_names)), {})

    def round(
        self, state: SCAFFOLDState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[SCAFFOLDState, RoundReport]:
        """Send x and c, take corrected steps, upload the changes of y_n and c_n, and average them uniformly."""
        names, none = fed.trained_names, torch.zeros_like(state.control)
        old = {n: state.controls.get(n, none) for n in cohort}
        given = {n: (state.control - old[n], none, none[:1]) for n in cohort}
        trained, ends = fed.train_by(self, dict.fromkeys(cohort, state.model), t, given)
        # Option II of Eq. (4): c_n ← c_n - c + (x - y_n) / (K η), which is the mean gradient of the K steps. A client
        # that took no step keeps c_n.
        new = {n: torch.where(k > 0, total / k.clamp_min(1), old[n]) for n, (_, total, k) in ends.items()}
        control = state.control + sum((new[n] - old[n] for n in cohort), none) / len(fed.clients)  # Eq. (5)
        x, model = vector_of(state.model, names), average(list(trained.values()))
        if self.server_rate != 1:
            end = x.double().lerp(vector_of(model, names).double(), self.server_rate)
            model = with_vector(model, names, end.to(x))
        after = SCAFFOLDState(model, control, {**state.controls, **new})
        sent: Models = {n: {**trained[n], "control": new[n]} for n in cohort}
        return after, RoundReport(trained, exchange.both_ways(sent))

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Return y - η (g(y) - c_n + c) (Eq. 3), c - c_n, the sum of the gradients, and their number."""
        y, correction, total, count = vectors
        slope = gradient(y, group[0])
        return sgd(y, slope + correction, rate), correction, total + slope, count + 1
