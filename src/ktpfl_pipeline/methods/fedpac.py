"""FedPAC: a shared extractor aligned by global class centroids, and heads that the server combines for each client.

Xu, Tong, Huang: Personalized Federated Learning with Feature Alignment and Classifier Collaboration, ICLR 2023,
Algorithm 1, https://arxiv.org/abs/2306.11867. The paper's symbols: θ is `common`, the extractor; φ_n is the head in
`models`, whose extractors are not used; c_k is the global centroid of the features of class k.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import seen
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import among
from ktpfl_pipeline.core.method import CommonState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, mix, params_of, trained_outside
from ktpfl_pipeline.methods.shared import common_head
from ktpfl_pipeline.methods.shared.parts import PartlyShared, head_names


@dataclass(frozen=True, eq=False)
class FedPACState(CommonState):
    """The state between rounds: θ, φ_n, c as (K, f) float64, and (K,) bool, which classes have a centroid."""

    prototypes: Tensor
    known: Tensor


@dataclass(frozen=True)
class FedPAC(PartlyShared):
    """FedPAC (Xu et al., 2023): clients align the features of a class, and combine heads where features are alike.

    Attributes:
        weight: λ, the weight of the squared distance to the centroid in the extractor's loss; 1 in the paper.
        head_epochs: epochs of the head, before the E epochs of the extractor; 1 in the paper.
        head_rate: the step size of the head, 0.1 in the authors' code; None takes η₁, as PFLlib does.
        centroids: how clients' centroids of a class are averaged: ``data``, by their numbers of samples of the class,
            as in the authors' code, or ``uniform``, as in PFLlib.
    """

    title = "FedPAC"
    exchanges = frozenset({"parameters", "prototypes"})
    own_step = True
    needs_head = "linear"

    weight: Annotated[float, Ge(0)] = 1.0
    head_epochs: Annotated[int, Ge(0)] = 1
    head_rate: Annotated[float | None, Ge(0)] = 0.1
    centroids: Literal["data", "uniform"] = "data"

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of the head's tensors, which the server combines for each client."""
        return head_names(fed)

    def init(self, fed: Federation) -> FedPACState:
        """Start from the initial model, without centroids."""
        empty = common_head.no_prototypes(fed, fed.head(fed.architecture, "linear").width)
        return FedPACState({}, super().init(fed).common, *empty)

    def round(self, state: FedPACState, cohort: list[int], t: int, fed: Federation) -> tuple[FedPACState, RoundReport]:
        """Send θ, φ_n and c; train; upload them with class means and statistics; average, and combine heads."""
        starts, width = self.personal(state, cohort, fed), state.prototypes.shape[1]
        found = fed.run("prototypes", statistics, {n: (params, width) for n, params in starts.items()})
        trained = fed.train_with(train_client, starts, t, state.prototypes, state.known, self)
        means, owned = common_head.upload_means(fed, trained, width)  # (|S|, K, f), (|S|, K)
        weights = owned if self.centroids == "uniform" else sent(fed.class_counts(cohort), fed.device)  # (|S|, K)
        prototypes = common_head.averaged_means(means, weights, state.prototypes)
        bodies = {n: self.uploaded(params, state.common) for n, params in trained.items()}
        shares = combination(*(torch.stack(part).cpu() for part in zip(*found.values(), strict=True)))  # α, (|S|, |S|)
        combined = dict(zip(cohort, mix(list(trained.values()), shares), strict=True))  # of which heads are used
        known = state.known | owned.any(dim=0)
        after = FedPACState({**state.models, **combined}, fed.average(bodies), prototypes, known)
        models, tables = exchange.both_ways(trained), exchange.prototypes(cohort, owned, width)
        use = {n: Traffic(prototypes_up=table.prototypes_up + 4) for n, table in tables.items()}  # h_n and V_n
        traffic = {n: models[n] + tables[n] + use[n] for n in cohort}
        shown = among(sent(shares, fed.device), fed.rows(cohort), len(fed.clients))
        return after, RoundReport(trained, traffic, shown)


def combination(h: Tensor, variances: Tensor) -> Tensor:
    """Return α, (n, n) float64: row i has the weights of all heads in client i's new head.

    Row i minimizes Σ_j α_j² V_j + ‖Σ_j α_j (h_i - h_j)‖² on the simplex, for h, (n, K, f), and V, (n,) `variances`.
    """
    from scipy.optimize import nnls  # here, because the import takes long

    rows, roots = [], variances.clamp_min(0.0).sqrt().diag()
    for own in h:
        matrix = torch.cat([(own - h).flatten(1).T, roots])  # A, (K f + n, n); the objective is ‖A α‖²
        # Least squares over β >= 0 of A β = 0 and s 1ᵀβ = s have β in the direction of α, for any s > 0.
        scale = torch.where(matrix.any(), matrix.norm(), 1.0)
        target = torch.cat([matrix.new_zeros(len(matrix)), scale[None]])
        found, _ = nnls(torch.cat([matrix, scale.expand(1, len(h))]).numpy(), target.numpy())
        rows.append(torch.from_numpy(found / found.sum()))
    return torch.stack(rows)


def statistics(space: Workspace, n: int, params: Params, width: int) -> Outcome[tuple[Tensor, Tensor]]:
    """Return what client n's features x tell of its heads' use, before training, both float64; models are in eval mode.

    h_n, (K, f): its share of each class times the class's mean feature. V_n, (): (mean ‖x‖² - ‖h_n‖²) / D_n.
    """
    samples = space.split(n, "train")
    found = seen(space, n, space.module(n, params), samples.inputs, width).double()  # (D_n, f)
    h = F.one_hot(samples.labels, space.setting.classes).to(found).T @ found / len(found)
    return Outcome((h, (found.square().sum() / len(found) - h.square().sum()) / len(found)))


def train_client(
    space: Workspace, n: int, params: Params, t: int, prototypes: Tensor, known: Tensor, method: FedPAC
) -> Outcome[Params]:
    """Train the head on the cross-entropy, and then the extractor, if any, on `common_head.aligned` with this head."""
    module = space.module(n, params).train()
    _, head = space.head(n, module)
    epochs = min(method.head_epochs, space.setting.training_of(n).epochs)  # none if E is 0
    own = PrivateSamples(space, n, t, "head")
    first = own.descend(head, own.cross_entropy(module), epochs, method.head_rate)
    extractor = trained_outside(module, head)
    if not len(extractor):
        return first.giving(params_of(module))
    own = PrivateSamples(space, n, t)
    loss = common_head.aligned(space, n, own, module, prototypes, known, method.weight)
    then = own.descend(extractor, loss)
    return replace(then, samples=Counter(first.samples) + Counter(then.samples)).giving(params_of(module))
