"""GPFL: features are learned for a global task and for the client's own task, with class embeddings that all share.

Zhang, Hua, Wang, Cao, Song, Xue, Ma, Guan: GPFL: Simultaneously Learning Global and Personalized Feature Information
for Personalized Federated Learning, ICCV 2023, Algorithm 1, https://arxiv.org/abs/2308.10279. The valve, the head and
the embeddings are `core/joint.py`'s `Valved`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joint import Valved, full, replaced
from ktpfl_pipeline.core.method import CommonState
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, params_of
from ktpfl_pipeline.methods.shared.parts import PartlyShared


@dataclass(frozen=True)
class GPFL(PartlyShared):
    """GPFL (Zhang et al., 2023): class embeddings guide generic features; personalized features enter an own head.

    Attributes:
        weight: λ, the weight of the distance of generic features to the received embeddings; 0.01 in the authors' code
            for its CNN.
        decay: μ, the weight decay of the valve and of the embeddings; 0.1 in the authors' code for its CNN.
        embeddings: the class embeddings from which the valve's inputs are made: the ``received`` ones, or the client's
            ``own`` ones after its last training, as in the authors' code (zeros before).
    """

    title = "GPFL"
    needs_head = "linear"

    weight: Annotated[float, Ge(0)] = 0.01
    decay: Annotated[float, Ge(0)] = 0.1
    embeddings: Literal["received", "own"] = "received"

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of the head's tensors and of the valve's inputs."""
        head = fed.head(fed.architecture, "linear")
        return [f"{head.name}.{key}" for key in ("linear.weight", *["linear.bias"] * head.bias, "contexts")]

    def initial(self, fed: Federation) -> Params:
        """Return the initial model with a new valve and new embeddings."""
        with rng.seeded(rng.derive(fed.seed, "initialisation", "valve")):
            module = replaced(fed.drawn(fed.architecture), fed.head(fed.architecture, "linear").name, Valved)
        return fed.placed(module)

    def personal(self, state: CommonState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the global extractor, valve and embeddings with each client's own head and inputs of the valve."""
        found = super().personal(state, clients, fed)
        return found if self.embeddings == "own" else self.seen(found, fed)

    def seen(self, models: Models, fed: Federation) -> Models:
        """Return the models with their valves' inputs: the means of embeddings over classes and over own samples."""
        name = fed.head(fed.architecture, "linear").name
        counts = fed.class_counts(models).double()
        shares = torch.stack([torch.ones_like(counts) / fed.classes, counts / counts.sum(dim=1, keepdim=True)], dim=1)
        pairs = zip(models.items(), sent(shares, fed.device), strict=True)  # (2, K) for each client
        return {
            n: {**params, f"{name}.contexts": own.to(table := params[f"{name}.embedding"]) @ table}
            for (n, params), own in pairs
        }

    def train(self, models: Models, t: int, fed: Federation, epochs: int | None = None) -> Models:
        """Return the models after local training."""
        found = fed.train_with(train_client, models, t, self, epochs)
        return self.seen(found, fed) if self.embeddings == "own" else found

    def adapt(self, state: CommonState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the models after training as in a round, without the distance to the received embeddings."""
        return replace(self, weight=0.0).train(models, 0, fed, epochs)


def train_client(space: Workspace, n: int, params: Params, t: int, method: GPFL, epochs: int | None) -> Outcome[Params]:
    """Train client n's model for both tasks.

    The loss is CE of the head on personalized features, plus CE of the cosines of generic features and embeddings. Two
    terms are added: λ times the Frobenius norm of the batch's differences between generic features and received
    embeddings, and μ/2 times the squared norms of the valve's and the embeddings' parameters.
    """
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    _, head = space.head(n, module)
    assert isinstance(head, Valved)
    received, decayed = head.embedding.detach().clone(), [*head.branches.parameters(), head.embedding]
    cross_entropy = own.cross_entropy(module)

    def loss(batch: Tensor) -> Tensor:
        with features(head, head.linear.in_features) as seen:
            fit = cross_entropy(batch)
        generic = full(head.valve(seen.pop(), head.contexts[0]))  # (b, f)
        cosines = F.normalize(generic) @ F.normalize(head.embedding).T  # (b, K)
        distance: Tensor = torch.linalg.vector_norm(generic - received[own.labels[batch]])
        decay = torch.stack([parameter.square().sum() for parameter in decayed]).sum()
        return fit + own.loss(cosines, batch) + method.weight * distance + method.decay / 2 * decay

    outcome = own.descend(module, loss, epochs)
    return outcome.giving(params_of(module))
