"""APFL: each client uses a mixture of its own and the global model, with a fixed or learned weight.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, 2020, Algorithm 1 and section 4,
https://arxiv.org/abs/2003.13461
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Gradient, Vectors, sgd
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import BesideCommon, CommonState, RoundReport
from ktpfl_pipeline.core.weights import Models, Params, average, select, vector_of, with_vector


@dataclass(frozen=True, eq=False)
class APFLState(CommonState):
    """The state between rounds: each client's own model v, the global model w, and α.

    Attributes:
        alphas: α of each client, (N,) float64.
    """

    alphas: Tensor


@dataclass(frozen=True)
class APFL(BesideCommon):
    """APFL (Deng et al., 2020): each client mixes its own model with the global model.

    The evaluated model is the mixture α v + (1 - α) w with the new global model w. The mixture is of parameters, as in
    Algorithm 1; the authors' code mixes outputs.

    Attributes:
        alpha: the initial α of every client; the paper tries 0.25, 0.5 and 0.75.
        alpha_rate: the step size of α. 0 keeps α constant. None takes η₁, which is the paper's adaptive α.
    """

    title = "APFL"
    own_step = True
    batches: ClassVar[int] = 1

    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.25
    alpha_rate: Annotated[float | None, Ge(0)] = 0.0

    def init(self, fed: Federation) -> APFLState:
        """Start from the initial model, with `alpha` for every client."""
        alphas = torch.full((len(fed.clients),), self.alpha, dtype=torch.float64, device=fed.device)
        return APFLState({}, fed.initial_model(fed.architecture), alphas)

    def round(self, state: APFLState, cohort: list[int], t: int, fed: Federation) -> tuple[APFLState, RoundReport]:
        """Send w; train w, v and α together; upload w; average it without weights, as in the paper's objective."""
        places, names = fed.places(cohort), fed.trained_names
        own = select({**fed.common_models(), **state.models}, cohort)
        held = {n: (vector_of(own[n], names), state.alphas[places[i], None]) for i, n in enumerate(cohort)}
        trained, ends = fed.train_by(self, dict.fromkeys(cohort, state.common), t, held)
        own = {n: with_vector(trained[n], names, ends[n][0]) for n in cohort}
        moved = torch.cat([ends[n][1] for n in cohort]).to(state.alphas)
        alphas = dict(zip(cohort, moved.tolist(), strict=True))
        learned = state.alphas.index_copy(0, fed.rows(cohort), moved)
        after = APFLState({**state.models, **own}, average(list(trained.values())), learned)
        local = {n: mixture(own[n], trained[n], alphas[n]) for n in cohort}
        return after, RoundReport(local, exchange.both_ways(trained), metrics={"alpha": fmean(alphas.values())})

    def step(self, vectors: Vectors, gradient: Gradient, group: Sequence[Tensor], rate: float) -> Vectors:
        """Step w along ∇f(w), and v and α along the parts of ∇f(α v + (1 - α) w), on one mini-batch."""
        w, v, alpha = vectors
        slope = gradient(alpha * v + (1.0 - alpha) * w, group[0])
        alpha_rate = rate if self.alpha_rate is None else self.alpha_rate
        moved = sgd(alpha, ((v - w) @ slope)[None], alpha_rate).clamp(0.0, 1.0)
        return sgd(w, gradient(w, group[0]), rate), sgd(v, alpha * slope, rate), moved

    def personal(self, state: APFLState, clients: Iterable[int], fed: Federation) -> Models:
        """Return each client's mixture, or the global model for a client that never took part."""
        alphas = dict(zip(fed.by_id, state.alphas.tolist(), strict=True))
        found = super().personal(state, clients, fed)
        return {n: mixture(own, state.common, alphas[n]) if n in state.models else own for n, own in found.items()}

    def adapt(self, state: APFLState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the mixtures after training w, v and α as in a round.

        A client that never took part starts with the global model as both w and v. The running statistics of BatchNorm
        start with the values of the mixture.
        """
        names, alphas = fed.trained_names, dict(zip(fed.by_id, state.alphas.tolist(), strict=False))
        own = {n: state.models.get(n, state.common) for n in models}
        held = {n: (vector_of(v, names), state.alphas.new_tensor([alphas.get(n, self.alpha)])) for n, v in own.items()}
        common = vector_of(state.common, names)
        starts = {n: with_vector(params, names, common) for n, params in models.items()}
        trained, ends = fed.train_by(self, starts, 0, held, dict.fromkeys(models, epochs))
        return {n: mixture(with_vector(trained[n], names, ends[n][0]), trained[n], float(ends[n][1])) for n in models}


def mixture(own: Params, common: Params, alpha: float) -> Params:
    """Return α v + (1 - α) w, where v is `own` and w is `common`."""
    return average([own, common], torch.tensor([alpha, 1.0 - alpha], dtype=torch.float64))
