"""FedAPEN: each client predicts with its own and a shared model together, whose weights it learns on held-out samples.

Qin, Deng, Zhao, Yan: FedAPEN: Personalized Cross-silo Federated Learning with Adaptability to Statistical
Heterogeneity, KDD 2023, https://doi.org/10.1145/3580305.3599344. Both models learn from each other, as in FML.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from ktpfl_pipeline.core import exchange, joint
from ktpfl_pipeline.core.client import Outcome, Workspace, sgd
from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import CommonState, Personal, RoundReport, SmallCommon
from ktpfl_pipeline.core.transfer import fetched
from ktpfl_pipeline.core.weights import Models, Params
from ktpfl_pipeline.methods.shared.mutual import Losses, train_pair


@dataclass(frozen=True, eq=False)
class FedAPENState(CommonState):
    """The state between rounds: each client's own model, the shared model, and the weight of the own one.

    Attributes:
        shares: λ by client; one half for a client that never took part.
    """

    shares: dict[int, float]


@dataclass(frozen=True)
class FedAPEN(SmallCommon, Personal):
    """FedAPEN (Qin et al., 2023): an ensemble of a private and a shared model adapts to how alike the clients are.

    Attributes:
        mutual: the weight of the divergence from the other model in both losses; 1 in the paper.
        rate: the step size of λ; 0.001 in the authors' code.
        epochs: passes over the validation samples in which λ is learned; 10 in the authors' code.
    """

    title = "FedAPEN"
    exchanges = frozenset({"parameters"})
    fits_validation = needs_validation = True

    mutual: Annotated[float, Ge(0)] = 1.0
    rate: Annotated[float, Gt(0)] = 0.001
    epochs: Annotated[int, Ge(0)] = 10

    def init(self, fed: Federation) -> FedAPENState:
        """Start from the initial models, with equal weights."""
        return FedAPENState(fed.initial_models(), fed.initial_model(self.architecture(fed)), {})

    def round(
        self, state: FedAPENState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedAPENState, RoundReport]:
        """Send the shared model, train both, average the copies, and learn the weights with the new shared model."""
        trained, copies = self.train(state, cohort, t, fed)
        shared = fed.average(copies)
        shares = self.learned_shares(state, trained, dict.fromkeys(trained, shared), t, fed)
        after = FedAPENState({**state.models, **trained}, shared, {**state.shares, **shares})
        local = self.ensembles(state, trained, copies, fed)
        return after, RoundReport(local, exchange.both_ways(copies), metrics={"own_share": fmean(shares.values())})

    def train(
        self, state: FedAPENState, clients: Iterable[int], t: int, fed: Federation, epochs: int | None = None
    ) -> tuple[Models, ...]:
        """Return own models and copies of the shared one after training together on `loss`."""
        own = super().personal(state, clients, fed)
        pairs, loss = (own, self.received(state, own)), partial(self.loss, state.shares)
        return fed.train_together(train_pair, pairs, t, self.architecture(fed), loss, epochs)

    def received(self, state: FedAPENState, clients: Iterable[int]) -> Models:
        """Return the shared model with which each client starts."""
        return dict.fromkeys(clients, state.common)

    def loss(self, shares: Mapping[int, float], n: int, of: Losses) -> Tensor:
        """Return each model's CE + CE of the ensemble + KL(other ‖ this one), without gradient through the other."""
        share = shares.get(n, 0.5)  # λ
        mine, theirs = share * of.own_logits, (1.0 - share) * of.common_logits
        both = of.cross_entropy(mine + theirs.detach()) + of.cross_entropy(mine.detach() + theirs)
        return of.own + of.common + both + self.mutual * (of.own_gap + of.common_gap)

    def learned_shares(
        self, state: FedAPENState, own: Models, common: Models, t: int, fed: Federation
    ) -> dict[int, float]:
        """Return each client's λ, learned with its own and its shared model."""
        name = self.architecture(fed)
        calls = {n: (own[n], common[n], state.shares.get(n, 0.5), self, name, t) for n in own}
        return dict(zip(calls, fetched([*fed.run("ensemble", learned_share, calls).values()]), strict=True))

    def ensembles(self, state: FedAPENState, own: Models, common: Models, fed: Federation) -> Models:
        """Return each client's own and shared model as one model, whose logits are λ z_own + (1 - λ) z_shared."""
        name = self.architecture(fed)
        return {n: joint.ensemble(own[n], common[n], name, state.shares.get(n, 0.5)) for n in own}

    def personal(self, state: FedAPENState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the ensemble of each client's own model and the shared one."""
        own = super().personal(state, clients, fed)
        return self.ensembles(state, own, self.received(state, own), fed)

    def adapt(self, state: FedAPENState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the ensembles after both models were trained on labels only, with constant weights."""
        own, common = replace(self, mutual=0.0).train(state, models, 0, fed, epochs)
        return self.ensembles(state, own, common, fed)

    def join(self, state: FedAPENState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients the shared model, which forms an ensemble with their initial ones."""
        return given(self.personal(state, newcomers, fed), dict.fromkeys(newcomers, state.common))


def learned_share(
    space: Workspace, n: int, own: Params, common: Params, share: float, method: FedAPEN, architecture: str, t: int
) -> Outcome[Tensor]:
    """Return λ, () float64, learned on the ensemble's cross-entropy over client n's validation samples.

    λ starts from `share` and stays between 0 and 1. Both models are in eval mode.
    """
    samples, setting = space.split(n, "validation"), space.setting
    mine = predict(space, space.module(n, own), samples.inputs).double()
    theirs = predict(space, space.module(architecture, common, "common"), samples.inputs).double()
    found = torch.full((), share, dtype=torch.float64, device=space.device)
    shuffle, size = setting.stream("ensemble", t, n), setting.training_of(n).batch_size
    for _ in range(method.epochs):
        for batch in sgd.batches(len(samples), size, shuffle, space.device):
            apart, logits = mine[batch] - theirs[batch], torch.lerp(theirs[batch], mine[batch], found)
            error = torch.softmax(logits, dim=1) - F.one_hot(samples.labels[batch], setting.classes)
            found = (found - method.rate * (error * apart).sum(dim=1).mean()).clamp(0.0, 1.0)
    return Outcome(found)
