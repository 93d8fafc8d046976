"""Code of methods that exchange class means of features, or share one head between all clients.

Clients may have different architectures: features are pooled to a common dimension F (`core/client/features.py`).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import PrivateSamples, Workspace, features
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.weights import Models, Params, select

Prediction = Literal["head", "nearest_prototype", "nearest_own_prototype"]
"""How a client classifies: by its head, or by the prototype that is nearest to a sample's feature, of all classes or of
those that the client has."""


def initial(fed: Federation, dimension: int) -> Params:
    """Return the initial head on F = `dimension` features, with torch's initialization of linear layers."""
    with rng.seeded(rng.derive(fed.seed, "initialisation", "common head")):
        layer = nn.Linear(dimension, fed.classes)
    return fed.placed(layer)


def train(fed: Federation, models: Models, heads: Models, t: int, epochs: int | None = None) -> tuple[Models, ...]:
    """Return the models after local training with heads on F features instead of their own, and the trained heads.

    Each client trains the parameters (W, b) of its head. With the layer (W P, b) of a model, where P pools the
    features, gradient steps would be longer (`core/client/features.py`).
    """
    return fed.train_together(features.train_common_head, (models, select(heads, models)), t, epochs)


def with_heads(fed: Federation, models: Models, heads: Models) -> Models:
    """Return each model with its head on F features in place of its own head."""
    names = {n: fed.head(fed.by_id[n].architecture, "biased").name for n in models}
    return {n: features.fitted(params, names[n], heads[n]) for n, params in models.items()}


def no_prototypes(fed: Federation, dimension: int) -> tuple[Tensor, Tensor]:
    """Return prototypes before any upload, (K, F) float64 zeros, and which classes have one: none, (K,) bool."""
    empty = torch.zeros(fed.classes, dimension, dtype=torch.float64, device=fed.device)
    return empty, empty.new_zeros(fed.classes, dtype=torch.bool)


def upload_means(fed: Federation, models: Models, dimension: int) -> tuple[Tensor, Tensor]:
    """Return each client's mean feature of each class, (|S|, K, F), and which classes it has, (|S|, K) bool.

    Raises:
        DivergedError: if a mean is not finite.
    """
    calls = {n: (params, dimension) for n, params in models.items()}
    found = fed.run("prototypes", features.class_means, calls)
    check_finite("prototypes", {n: means for n, (means, _) in found.items()})
    return torch.stack([found[n][0] for n in models]), torch.stack([found[n][1] for n in models])


def averaged_means(means: Tensor, weights: Tensor, prototypes: Tensor) -> Tensor:
    """Return the weighted average of the clients' mean features of each class, (K, F).

    A class of which all weights are zero keeps its row of `prototypes`, (K, F).

    Args:
        means: (|S|, K, F), the mean features.
        weights: (|S|, K), integers as floats; zero for a class of which a client has no samples.
    """
    weights = weights.to(means)
    totals = weights.sum(dim=0)[:, None]  # (K, 1)
    sums = (weights[..., None] * means).sum(dim=0)
    return torch.where(totals > 0, sums / totals.clamp_min(1.0), prototypes)


def averaged(means: Tensor, owned: Tensor, prototypes: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return each class's mean over the clients that have the class, (K, F), and which classes have one, (K,).

    The prototype of a class that no client of the cohort has does not change.

    Args:
        means: (|S|, K, F) the cohort's class means, zeros where a client has no sample of the class.
        owned: (|S|, K) bool, whether a client has samples of the class.
        prototypes: (K, F), the prototypes so far.
        known: (K,) bool, which of them exist.
    """
    return averaged_means(means, owned, prototypes), known | owned.any(dim=0)


def classified(fed: Federation, models: Models, prototypes: Tensor, known: Tensor, prediction: Prediction) -> Models:
    """Return the models, which classify by the nearest prototype if `prediction` says so; see `with_prototypes`."""
    if prediction == "head":
        return models
    calls = {n: (params, prototypes, known, prediction == "nearest_own_prototype") for n, params in models.items()}
    return fed.run("classify", features.with_prototypes, calls)


def aligned(
    space: Workspace, n: int, own: PrivateSamples, module: nn.Module, prototypes: Tensor, known: Tensor, weight: float
) -> Callable[[Tensor], Tensor]:
    """Return CE + λ·MSE(feature, prototype of the sample's class) as a function of a batch of client n's samples, (b,).

    λ is `weight`. The second term is zero for a class without a prototype, one that is not `known`, (K,) bool.
    """
    _, head = space.head(n, module)
    targets, counted = prototypes.to(space.device, space.dtype), known.to(space.device, space.dtype)
    cross_entropy = own.cross_entropy(module)

    def loss(batch: Tensor) -> Tensor:
        labels = own.labels[batch]
        with features.features(head, targets.shape[1]) as seen:
            fit = cross_entropy(batch)
        error = (seen.pop() - targets[labels]).square().mean(dim=1)  # (b,)
        return fit + weight * (error * counted[labels]).mean()

    return loss
