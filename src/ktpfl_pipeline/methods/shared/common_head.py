"""Shared by methods on features and heads: class means of the clients, and one head for all clients.

Clients may have different architectures; see `core/client/features.py`.
"""

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import features
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.weights import Models, Params


def initial(fed: Federation, dimension: int) -> Params:
    """Return the initial head on F = `dimension` features, with torch's initialization of linear layers."""
    with rng.seeded(rng.derive(fed.seed, "initialisation", "common head")):
        layer = nn.Linear(dimension, fed.classes)
    return fed.placed(layer)


def train(fed: Federation, models: Models, head: Params, t: int, epochs: int | None = None) -> tuple[Models, ...]:
    """Return each model after training with the shared head in place of its own, and the client's copy of the head.

    The copy is trained in its own parameters; the layer (W P, b) of a model would take longer steps.
    """
    return fed.train_together(features.train_common_head, (models, dict.fromkeys(models, head)), t, epochs)


def with_head(fed: Federation, models: Models, head: Params) -> Models:
    """Return each model with the shared head in place of its own head."""
    names = {n: fed.head(fed.by_id[n].architecture, "biased").name for n in models}
    return {n: features.fitted(params, names[n], head) for n, params in models.items()}


def upload_means(fed: Federation, models: Models, dimension: int) -> tuple[Tensor, Tensor]:
    """Return each client's mean feature by class, (|S|, K, F), and whether it has the class, (|S|, K) bool."""
    calls = {n: (params, dimension) for n, params in models.items()}
    found = fed.run("prototypes", features.class_means, calls)
    check_finite("prototypes", {n: means for n, (means, _) in found.items()})
    return torch.stack([found[n][0] for n in models]), torch.stack([found[n][1] for n in models])
