"""FedTGP: the server trains the class prototypes, so that they are farther apart than averages of uploads.

Zhang, Liu, Hua, Cao: FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning for Data
and Model Heterogeneity in Federated Learning, AAAI 2024, https://arxiv.org/abs/2401.03230. Clients train as in
FedProto.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.weights import Params, loaded, params_of
from ktpfl_pipeline.methods.fedproto import FedProto, FedProtoState


@dataclass(frozen=True, eq=False)
class FedTGPState(FedProtoState):
    """The state between rounds: each client's model, the global prototypes, and their generator.

    Attributes:
        generator: the weights of the generator, a module made by `generator_of`.
    """

    generator: Params


@dataclass(frozen=True)
class FedTGP(FedProto):
    """FedTGP (Zhang et al., 2024): prototypes are trained to be near uploads of their class and far from all others.

    Attributes:
        weight: λ, the weight of the squared distance to the prototype in the local loss.
        threshold: τ, the largest margin.
        rate: the server's step size.
        steps: S, the server's steps per round, each on all uploaded prototypes.
    """

    title = "FedTGP"

    threshold: Annotated[float, Ge(0)] = 100.0
    rate: Annotated[float, Gt(0)] = 0.1
    steps: Annotated[int, Ge(1)] = 100

    def init(self, fed: Federation) -> FedTGPState:
        """Start from the initial models and a generator, without prototypes."""
        with rng.seeded(rng.derive(fed.seed, "initialisation", "prototypes")):
            generator = generator_of(fed.classes, self.dimension)
        start = super().init(fed)
        return FedTGPState(start.models, start.prototypes, start.known, params_of(generator.to(fed.device)))

    def aggregate(self, state: FedTGPState, means: Tensor, owned: Tensor, t: int, fed: Federation) -> FedTGPState:
        """Train the generator on the uploaded prototypes, and return the state with the generated prototypes."""
        labels = owned.nonzero()[:, 1]  # (M,) of the M uploaded prototypes
        recipe = Recipe(self.steps, len(labels), self.rate)
        delta = margin(super().aggregate(state, means, owned, t, fed).prototypes[owned.any(dim=0)], self.threshold)
        last = means[owned], labels, delta
        generator = fed.fuse("prototypes", train_generator, state.generator, recipe, t, *last)
        known = state.known | owned.any(dim=0)
        with torch.no_grad():
            made = rebuilt(generator)(torch.arange(fed.classes, device=fed.device))
            prototypes = torch.where(known[:, None], made, 0.0)
        return FedTGPState(state.models, prototypes, known, generator)


def generator_of(classes: int, dimension: int) -> nn.Module:
    """Return the generator of a prototype, (F,), from a class: a trainable vector and two layers, float64."""
    layers = [nn.Linear(dimension, dimension), nn.ReLU(), nn.Linear(dimension, dimension)]
    return nn.Sequential(nn.Embedding(classes, dimension), *layers).double()


def rebuilt(params: Params) -> nn.Module:
    """Return the generator with these weights, on their device."""
    return loaded(lambda: generator_of(*params["0.weight"].shape), params)  # (K, F)


def margin(centers: Tensor, threshold: float) -> float:
    """Return δ = min(max_{c≠c'} ‖Q_c - Q_c'‖, τ) of the classes' mean prototypes Q, (C, F) (FedTGP Eq. 6)."""
    return min(float(torch.pdist(centers).max()), threshold) if len(centers) > 1 else threshold


def train_generator(
    space: Workspace, name: str, params: Params, recipe: Recipe, t: int, uploaded: Tensor, labels: Tensor, delta: float
) -> Outcome[Params]:
    """Train the generator with the contrastive loss of FedTGP, whose margin is δ.

    The loss of an uploaded prototype is the cross-entropy of its class with the logits -(d + δ·e). d, (K,), are its
    Euclidean distances from the generated prototypes, and e, (K,), is the one-hot vector of its class.

    Args:
        recipe: the server's optimizer.
        uploaded: (M, F), the prototypes from the clients of the cohort.
        labels: (M,), the classes of the uploaded prototypes.
        delta: δ.
    """
    setting = space.setting
    module = rebuilt(params)
    everything = torch.arange(setting.classes, device=space.device)
    own = F.one_hot(labels, setting.classes).to(uploaded)  # (M, K)

    def loss(batch: Tensor) -> Tensor:
        distances = torch.cdist(uploaded[batch], module(everything), compute_mode="donot_use_mm_for_euclid_dist")
        return F.cross_entropy(-(distances + delta * own[batch]), labels[batch])

    outcome = descend(space, module, loss, len(labels), recipe, t, setting.stream("server shuffle", t))
    return outcome.giving(params_of(module))
