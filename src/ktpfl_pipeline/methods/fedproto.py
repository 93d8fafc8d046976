"""FedProto: clients share the mean feature of each class, and draw their own features toward it.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022,
Algorithm 1, https://arxiv.org/abs/2105.00243. A feature is what enters a model's last linear layer; those of
different architectures meet in a common dimension F by averaging neighbours. A client classifies with its own head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.private import PrivateSamples
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, params_of, select


@dataclass(frozen=True, eq=False)
class FedProtoState(PersonalState):
    """What crosses rounds: each client's model, and the global prototypes.

    Attributes:
        prototypes: (K, F) float64, zeros for a class that no client has shown yet.
        known: (K,) bool, which classes have one.
    """

    prototypes: Tensor
    known: Tensor


@dataclass(frozen=True)
class FedProto(Personal):
    """Key idea: what a class looks like inside a model can be shared, where the models cannot.

    Attributes:
        weight: λ of the squared distance to the prototype in the local loss; 1 in the paper.
        dimension: F, the common dimension of the features.
    """

    title = "FedProto"
    exchanges = frozenset({"prototypes"})
    private_data = "its own training rule and class means"

    weight: Annotated[float, Ge(0)] = 1.0
    dimension: Annotated[int, Ge(1)] = 64

    def init(self, fed: Federation) -> FedProtoState:
        """Start from the common initial models, with no prototypes."""
        empty = torch.zeros(fed.classes, self.dimension, dtype=torch.float64, device=fed.device)
        return FedProtoState(fed.initial_models(), empty, empty.new_zeros(fed.classes, dtype=torch.bool))

    def round(
        self, state: FedProtoState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[FedProtoState, RoundReport]:
        """Train toward the prototypes, upload those of the own classes, average them over the clients that have one."""
        trained = self.train(select(state.models, cohort), state.prototypes, state.known, t, fed)
        means, counts = upload_means(fed, trained, self.dimension)  # (|S|, K, F), (|S|, K)
        owned = counts > 0
        owners = owned.sum(dim=0)  # (K,)
        shown = owners > 0
        averaged = means.sum(dim=0) / owners.clamp_min(1)[:, None]  # a client without the class adds zeros
        prototypes = torch.where(shown[:, None], averaged, state.prototypes)
        vector = 4 * self.dimension
        traffic = {
            n: Traffic(prototypes_up=own * vector, prototypes_down=fed.classes * vector)
            for n, own in zip(cohort, owned.sum(dim=1).tolist(), strict=True)
        }
        after = FedProtoState({**state.models, **trained}, prototypes, state.known | shown)
        return after, RoundReport(trained, traffic)

    def train(self, models: Models, prototypes: Tensor, known: Tensor, t: int, fed: Federation) -> Models:
        """Return each model trained with its features drawn toward class prototypes; see `train_client`."""
        calls = {n: (params, prototypes, known, self.weight, t) for n, params in models.items()}
        return fed.run_training("train", train_client, calls, models, uses="trains toward prototypes")


def upload_means(fed: Federation, models: Models, dimension: int) -> tuple[Tensor, Tensor]:
    """Return each client's mean feature by class, (|S|, K, F), and its training samples by class, (|S|, K)."""
    calls = {n: (params, dimension) for n, params in models.items()}
    found = fed.run("prototypes", class_means, calls, uses="shares mean features of private samples")
    check_finite("prototypes", {n: means for n, (means, _) in found.items()})
    return torch.stack([found[n][0] for n in models]), torch.stack([found[n][1] for n in models])


@contextmanager
def features(module: nn.Module, dimension: int) -> Iterator[list[Tensor]]:
    """Yield a list to which every forward pass of `module` adds its features, (b, F)."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError(
            f"{type(module).__name__} has no linear layer whose input could be its feature; leave fedproto out, or "
            "give the model a linear head."
        )
    seen: list[Tensor] = []
    pool = nn.AdaptiveAvgPool1d(dimension)
    with linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(pool(inputs[0].flatten(1)))):
        yield seen


def train_client(
    space: Workspace, n: int, params: Params, prototypes: Tensor, known: Tensor, weight: float, t: int
) -> Outcome[Params]:
    """Train E epochs on CE + λ·MSE(feature, prototype of the sample's class) over client n's data.

    With λ = 0 this is local training, to the bit. A sample of a class that has no prototype yet counts zero in the
    second term.

    Args:
        space: the process's workspace.
        n: the client.
        params: its weights.
        prototypes: (K, F).
        known: (K,) bool, which classes have a prototype.
        weight: λ.
        t: the round, which names the streams.
    """
    setting, own = space.setting, PrivateSamples(space, n, t, n)
    module = space.module(n, params).train()
    targets, counted = prototypes.to(space.device, space.dtype), known.to(space.device, space.dtype)

    with features(module, prototypes.shape[1]) as seen:

        def loss(batch: Tensor) -> Tensor:
            labels = own.labels[batch]
            fit = own.loss(module(own.inputs(batch)), batch)
            error = (seen.pop() - targets[labels]).square().mean(dim=1)  # (b,)
            return fit + weight * (error * counted[labels]).mean()

        with rng.seeded(rng.derive(setting.seed, "dropout", t, n), space.device):
            value = descend(space, module, loss, len(own), setting.training, t, setting.stream("private shuffle", t, n))
    return Outcome(params_of(module), value)


def class_means(space: Workspace, n: int, params: Params, dimension: int) -> Outcome[tuple[Tensor, Tensor]]:
    """Return the mean feature of each class over client n's training samples, (K, F), and their numbers, (K,).

    In eval mode and float64; zeros for a class of which the client has no sample.
    """
    samples, module = space.split(n, "train"), space.module(n, params)
    with features(module, dimension) as seen:
        predict(space, module, samples.inputs)
    found = torch.cat(seen).double()  # (D_n, F)
    member = F.one_hot(samples.labels, space.setting.classes).to(found)  # (D_n, K)
    counts = member.sum(dim=0)
    return Outcome((member.T @ found / counts.clamp_min(1.0)[:, None], counts))
