"""FedAMP and HeurFedAMP: each client is pulled toward a mixture of models similar to its own.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021,
Algorithm 1 and section 4.3, https://arxiv.org/abs/2007.03797
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from torch import Tensor
from torch.nn.functional import normalize

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Proximal
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.blocks import among
from ktpfl_pipeline.core.method import PersonalParameters, PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.weights import Params, gram, matrix_of, mix, squared_distances, vector_of


@dataclass(frozen=True)
class FedAMP(PersonalParameters):
    """FedAMP (Huang et al., 2021): the more similar the models of two clients are, the more they attract each other.

    The state has the last upload of each client that took part. A client that never took part neither gives nor
    receives weight. Its first u is therefore the initial model, as in the first round of Algorithm 1.

    Attributes:
        coupling: λ / (2α), the weight of ‖w - u‖² in the local loss.
        attention: the largest total weight that a client gives to other clients. The client with the largest sum of
            similarities gives exactly this weight. The setting replaces the paper's α, whose scale depends on the
            models. σ is the median squared distance between models.
    """

    title = "FedAMP"
    own_step = True
    paper_name = "FedAMP"

    coupling: Annotated[float, Ge(0)] = 0.1
    attention: Annotated[float, Interval(ge=0, le=1)] = 0.5

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Mix each client's u from the last uploads, send it, train from u with a pull toward u, and upload."""
        xi, rows = self.weights_of_seen(state, fed), fed.rows(cohort)  # (N, N)
        models = {**fed.common_models(), **state.models}
        u = dict(zip(cohort, mix([models[n] for n in fed.by_id], xi[rows]), strict=True))  # u_i = Σ_j ξ_ij w_j
        anchors = {n: (vector_of(model, fed.trained_names),) for n, model in u.items()}
        trained, _ = fed.train_by(Proximal(2.0 * self.coupling), u, t, anchors)
        shown = torch.eye(len(xi)).to(xi).index_copy(0, rows, xi[rows])  # clients outside the cohort received nothing
        after = PersonalState({**state.models, **trained})
        return after, RoundReport(trained, exchange.both_ways(trained), shown)

    def weights_of_seen(self, state: PersonalState, fed: Federation) -> Tensor:
        """Return ξ, (N, N) float64, whose rows sum to one; a client that never uploaded gives weight only to itself."""
        seen = [n for n in fed.by_id if n in state.models]
        if len(seen) < 2:
            return torch.eye(len(fed.clients), dtype=torch.float64, device=fed.device)
        return among(self.mixture([state.models[n] for n in seen], fed), fed.rows(seen), len(fed.clients))

    def mixture(self, uploads: list[Params], fed: Federation) -> Tensor:
        """Return ξ_ij = (α/σ) exp(-‖w_i - w_j‖² / σ) off the diagonal, rows that sum to one, (n, n)."""
        distances = squared_distances(gram(uploads, fed.trained_names))
        others = ~torch.eye(len(distances), dtype=torch.bool, device=distances.device)
        sigma = distances[others].quantile(0.5).clamp_min(TINY)
        similar = torch.exp(-distances / sigma) * others
        xi = self.attention * similar / similar.sum(dim=1).max().clamp_min(TINY)
        return xi + torch.diag(1.0 - xi.sum(dim=1))


@dataclass(frozen=True)
class HeurFedAMP(FedAMP):
    """HeurFedAMP (Huang et al., 2021): FedAMP with cosines instead of distances, for deep networks.

    `attention` is 1 - ξ_ii, the total weight that each client gives to others.

    Attributes:
        sharpness: σ, the inverse temperature of the cosines.
    """

    title = "HeurFedAMP"

    sharpness: Annotated[float, Ge(0)] = 25.0

    def mixture(self, uploads: list[Params], fed: Federation) -> Tensor:
        """Return ξ_ij = (1 - ξ_ii) softmax_{j ≠ i}(σ cos(w_i, w_j)), (n, n)."""
        directions = normalize(matrix_of(uploads, fed.trained_names).double(), dim=1)
        scores = (self.sharpness * directions @ directions.T).fill_diagonal_(-torch.inf)
        own = (1.0 - self.attention) * torch.eye(len(scores)).to(scores)
        return self.attention * torch.softmax(scores, dim=1) + own
