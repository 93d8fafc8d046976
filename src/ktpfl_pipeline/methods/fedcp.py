"""FedCP: a policy splits the features of each sample between a global head and the client's own head.

Zhang, Hua, Wang, Song, Xue, Ma, Guan: FedCP: Separating Feature Information for Personalized Federated Learning via
Conditional Policy, KDD 2023, Algorithm 1, https://arxiv.org/abs/2307.01217. The heads and the policy are
`core/joint.py`'s `Gated`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn.functional import normalize

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joint import Gated, full, replaced
from ktpfl_pipeline.core.method import CommonState
from ktpfl_pipeline.core.weights import Models, Params, params_of, trained_outside
from ktpfl_pipeline.methods.shared.parts import PartlyShared

WIDTHS = (10.0, 15.0, 20.0, 50.0)
"""The widths of the kernels in the distance between features, as in the authors' code."""


@dataclass(frozen=True)
class FedCP(PartlyShared):
    """FedCP (Zhang et al., 2023): which features are global and which are personal is decided for each sample.

    Attributes:
        weight: λ, the weight of the distance between the client's features and those of the global extractor; 5 in the
            authors' code for its CNN.
        gumbel: whether training adds Gumbel noise to the policy, as the authors' code does, also in evaluation.
    """

    title = "FedCP"
    needs_head = "linear"

    weight: Annotated[float, Ge(0)] = 5.0
    gumbel: bool = False

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of the personal head's tensors and of the context that is made of them."""
        head = fed.head(fed.architecture, "linear")
        return [f"{head.name}.{key}" for key in ("personal.weight", *["personal.bias"] * head.bias, "context")]

    def initial(self, fed: Federation) -> Params:
        """Return the initial model with both heads equal to its head, and a new policy."""
        with rng.seeded(rng.derive(fed.seed, "initialisation", "policy")):
            module = replaced(fed.drawn(fed.architecture), self.head(fed), Gated)
        return self.seen(fed.placed(module), fed)

    def head(self, fed: Federation) -> str:
        """Return the name of the head."""
        return fed.head(fed.architecture, "linear").name

    def seen(self, params: Params, fed: Federation) -> Params:
        """Return a model whose policy sees the client by its personal head: v = Σ_k w_k / ‖Σ_k w_k‖ of its rows."""
        name = self.head(fed)
        context = normalize(params[f"{name}.personal.weight"].sum(dim=0), dim=0)
        return {**params, f"{name}.context": context}

    def personal(self, state: CommonState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the global extractor, global head and policy with each client's own head."""
        return {n: self.seen(params, fed) for n, params in super().personal(state, clients, fed).items()}

    def train(self, models: Models, t: int, fed: Federation, epochs: int | None = None) -> Models:
        """Return the models after local training of everything except the global head."""
        return fed.train_with(train_client, models, t, self, epochs)

    def uploaded(self, trained: Params, common: Params) -> Params:
        """Return the extractor, the policy, and the mean of the own and the global head."""
        pairs = ((name, name.replace(".common.", ".personal.")) for name in common)
        means = {name: (trained[name] + trained[own]) / 2 for name, own in pairs if own != name and own in trained}
        return {**super().uploaded(trained, common), **means}

    def adapt(self, state: CommonState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the models after training as in a round, without the distance to the global extractor's features."""
        return replace(self, weight=0.0).train(models, 0, fed, epochs)


def train_client(
    space: Workspace, n: int, params: Params, t: int, method: FedCP, epochs: int | None
) -> Outcome[Params]:
    """Train client n's model on CE + λ·MMD(features, features of the received extractor)."""
    own, module = PrivateSamples(space, n, t), space.module(n, params).train()
    received = space.module(n, params, "received").train()  # in the same mode, for comparable features
    (_, head), (_, other) = space.head(n, module), space.head(n, received)
    assert isinstance(head, Gated)
    width, head.noisy = head.personal.in_features, method.gumbel

    def loss(batch: Tensor) -> Tensor:
        inputs = own.inputs(batch)
        with features(head, width) as seen:
            fit = own.loss(module(inputs), batch)
        if not method.weight:
            return fit
        with features(other, width) as before, torch.no_grad():
            received(inputs)
        return fit + method.weight * discrepancy(seen.pop(), before.pop())

    outcome = own.descend(trained_outside(module, head.common), loss, epochs)
    return outcome.giving(params_of(module))


def discrepancy(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared maximum mean discrepancy, (), of x and y, (b, f), summed over Gaussian kernels of `WIDTHS`."""
    both = full(torch.cat([x, y]))
    squares = both.square().sum(dim=1)
    distances = squares[:, None] + squares - 2.0 * both @ both.T  # (2b, 2b)
    kernels = torch.stack([(distances / (-2.0 * width)).exp() for width in WIDTHS]).sum(dim=0)
    signs = torch.ones_like(squares)
    signs[len(x) :] = -1.0
    return (signs[:, None] * signs * kernels).sum() / len(x) ** 2
