"""COMET: clients are clustered by their predictions, and each learns from the average of its cluster.

Cho, Wang, Chiruvolu, Joshi: Personalized Federated Learning for Heterogeneous Clients with Clustered Knowledge
Transfer, 2021, https://arxiv.org/abs/2109.08119, where the method is called PerFed-CKT. The paper adds the squared
distance from the cluster's average to the local loss. Here clients distill the average with the KL loss of all other
methods, so that methods differ only in the choice of teachers.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalRound, PersonalState
from ktpfl_pipeline.core.shares import rounded_up

MAX_STEPS = 100  # the largest number of k-means steps; usually a few steps suffice


@dataclass(frozen=True)
class COMET(Personal):
    """COMET (Cho et al., 2021): each client learns from the average of its cluster.

    Attributes:
        clusters: G, the number of clusters of the cohort, at most one per client. None takes `share` of the cohort.
        share: G / |S| if `clusters` is None; G is rounded up. The paper gives no number. Validation chose 0.75 most
            often for 20 clients.
    """

    title = "COMET"
    covered = True

    clusters: Annotated[int | None, Ge(1)] = None
    share: Annotated[float, Gt(0), Le(1)] = 0.75

    def round(self, state: PersonalState, cohort: list[int], t: int, fed: Federation) -> PersonalRound:
        """Train, predict, cluster, and distill the average of each client's cluster."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        groups = rounded_up(self.share, len(cohort)) if self.clusters is None else self.clusters
        member = k_means(upload.soft.flatten(1), groups)  # (|S|, G)
        together = member @ member.T  # 1 where two clients share a cluster
        return exchange.teach_mixtures(fed, state, upload, together / together.sum(dim=1, keepdim=True), t)


def k_means(points: Tensor, clusters: int) -> Tensor:
    """Return the cluster membership, (n, G) zeros and ones, by Lloyd's algorithm.

    The first center is the point nearest to the mean. Each further center is the point farthest from all chosen
    centers. The algorithm is deterministic, and the order of the points matters only for ties.

    Args:
        points: (n, d).
        clusters: G; fewer than G points make n clusters.
    """
    chosen = torch.cdist(points, points.mean(dim=0, keepdim=True)).argmin(dim=0)
    while len(chosen) < min(clusters, len(points)):
        farthest = torch.cdist(points, points[chosen]).min(dim=1).values.argmax(dim=0, keepdim=True)
        chosen = torch.cat([chosen, farthest])
    centers = points[chosen]
    member = torch.zeros(len(points), len(centers), dtype=points.dtype, device=points.device)
    for step in range(1, MAX_STEPS + 1):
        nearest = torch.cdist(points, centers).argmin(dim=1)
        assigned = torch.nn.functional.one_hot(nearest, len(centers)).to(points)
        if step.bit_count() == 1 and torch.equal(assigned, member):  # converged; each test synchronizes with a GPU
            break
        member, counts = assigned, assigned.sum(dim=0)[:, None]
        centers = torch.where(counts > 0, member.T @ points / counts.clamp_min(1.0), centers)
    return member
