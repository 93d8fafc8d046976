"""pFedMe: each client's model stays near a global model, which moves toward all clients' models (Moreau envelopes).

Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020, Algorithm 1,
https://arxiv.org/abs/2006.08848. pFedMe minimizes Σ_n F_n(w) / N with F_n(w) = min_θ f_n(θ) + (λ/2)‖θ - w‖².
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.weights import Models, vector_of, with_vector


@dataclass(frozen=True)
class PFedMe(BesideCommon):
    """pFedMe (Dinh et al., 2020): each client fits a personal model to its data, near the global model.

    The evaluated models are the personal models θ. Only the global model w is exchanged.

    Attributes:
        coupling: λ; 15 in the paper. η₁ λ must be below 1.
        inner_steps: K, the steps of θ on one mini-batch; 5 in the paper.
        inner_rate: the step size of θ; None takes η₁.
        server_rate: β, the step of the global model toward the clients' average; 1 replaces the model by the average.
            Statistics of BatchNorm are always replaced.
    """

    title = "pFedMe"
    own_step = True
    paper_name = "pFedMe"
    batches: ClassVar[int] = 1

    coupling: Annotated[float, Ge(0)] = 15.0
    inner_steps: Annotated[int, Ge(1)] = 5
    inner_rate: Annotated[float | None, Ge(0)] = None
    server_rate: Annotated[float, Interval(ge=0, le=2)] = 1.0

    def round(self, state: CommonState, cohort: list[int], t: int, fed: Federation) -> tuple[CommonState, RoundReport]:
        """Send w, alternate between steps of θ and w locally, upload w, and average it."""
        w = (vector_of(state.common, fed.trained_names),)
        theta, ends = fed.train_by(self, dict.fromkeys(cohort, state.common), t, dict.fromkeys(cohort, w))
        uploads: Models = {n: with_vector(theta[n], fed.trained_names, ends[n][0]) for n in cohort}
        common = fed.average(uploads)
        if self.server_rate != 1:  # w ← w + β (average - w); a variance of BatchNorm could become negative with β > 1
            end = vector_of(common, fed.trained_names).double()
            moved = w[0].double().lerp(end, self.server_rate).to(w[0])
            common = with_vector(common, fed.trained_names, moved)
        return CommonState({**state.models, **theta}, common), RoundReport(theta, exchange.both_ways(theta))

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Take K steps of θ on f_n(θ) + (λ/2)‖θ - w‖² with one mini-batch, and then one step of w toward θ."""
        theta, w = vectors
        inner = rate if self.inner_rate is None else self.inner_rate
        for _ in range(self.inner_steps):
            theta = sgd(theta, gradient(theta, group[0]) + self.coupling * (theta - w), inner)
        return theta, sgd(w, self.coupling * (w - theta), rate)
