"""FedDBE: FedAvg without domain bias in the features; each client keeps its bias in a vector of its own.

Zhang, Hua, Cao, Wang, Song, Xue, Ma, Guan: Eliminating Domain Bias for Federated Learning in Representation Space,
NeurIPS 2023, Algorithm 1, https://arxiv.org/abs/2311.14975. This is FedAvg + DBE.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from torch import Tensor, nn

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client import Outcome, PrivateSamples, Workspace
from ktpfl_pipeline.core.client.features import seen
from ktpfl_pipeline.core.federation import Federation, check_finite
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, params_of


@dataclass(frozen=True, eq=False)
class FedDBEState(SharedState):
    """The state between rounds: the global model, and the biases of the features.

    Attributes:
        biases: z^p_n of each client that trained one, as models with one tensor ``bias``, (f,).
        mean: z^g, (f,) float64, the mean feature of the first round's clients; None before that round.
    """

    biases: Models
    mean: Tensor | None


@dataclass(frozen=True)
class FedDBE(Shared):
    """FedDBE (Zhang et al., 2023): features have one mean in all clients, and each client adds a bias of its own.

    The model of a client is the global model whose head reads x + z^p_n instead of the features x.

    Attributes:
        weight: κ, the weight of half the mean squared difference of the mean feature and z^g; 50 in the paper.
        momentum: μ, the weight of a batch in the running mean of features; 1, the batch alone, in the paper.
    """

    title = "FedDBE"
    exchanges = frozenset({"parameters", "prototypes"})
    needs_head = "biased"

    weight: Annotated[float, Ge(0)] = 50.0
    momentum: Annotated[float, Interval(ge=0, le=1)] = 1.0

    def init(self, fed: Federation) -> FedDBEState:
        """Start from the common initial model, without biases."""
        return FedDBEState(super().init(fed).model, {}, None)

    def round(self, state: FedDBEState, cohort: list[int], t: int, fed: Federation) -> tuple[FedDBEState, RoundReport]:
        """Run a round of FedAvg with the biases; the first round, without them, finds z^g instead."""
        width, mean, moved = fed.head(fed.architecture, "biased").width, state.mean, dict[int, Params]()
        if mean is None:
            trained, also = fed.train(dict.fromkeys(cohort, state.model), t), Traffic(prototypes_up=4 * width)
            found = fed.run("prototypes", mean_feature, {n: (params, width) for n, params in trained.items()})
            check_finite("prototypes", found)
            mean = fed.data_weights(cohort) @ torch.stack(list(found.values()))
        else:
            trained, moved = self.train(state, cohort, t, fed)
            also = Traffic(prototypes_down=4 * width)
        after = FedDBEState(fed.average(trained), {**state.biases, **moved}, mean)
        local = {n: shifted(params, fed, after.biases.get(n, {})) for n, params in trained.items()}
        return after, RoundReport(local, {n: size + also for n, size in exchange.both_ways(trained).items()})

    def train(
        self, state: FedDBEState, clients: Iterable[int], t: int, fed: Federation, epochs: int | None = None
    ) -> tuple[Models, ...]:
        """Return the global model and z^p, after each client trained both."""
        zeros: Params = {"bias": torch.zeros_like(state.model[f"{fed.head(fed.architecture).name}.weight"][0])}
        biases = {n: state.biases.get(n, zeros) for n in clients}
        pairs = dict.fromkeys(biases, state.model), biases
        return fed.train_together(train_client, pairs, t, state.mean, self, epochs)

    def personal(self, state: FedDBEState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the global model with each client's z^p, if it has one."""
        return {n: shifted(state.model, fed, state.biases.get(n, {})) for n in clients}

    def adapt(self, state: FedDBEState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return the clients' models after training the global model and z^p as in a round, without the pull to z^g."""
        if state.mean is None:
            return fed.fine_tune(models, epochs)
        trained, moved = replace(self, weight=0.0).train(state, models, 0, fed, epochs)
        return {n: shifted(trained[n], fed, moved[n]) for n in models}


def shifted(model: Params, fed: Federation, own: Params) -> Params:
    """Return the model whose head reads x + z^p: the head's bias b becomes b + W z^p. `own` is empty without z^p."""
    name = fed.head(fed.architecture, "biased").name
    shifts = {f"{name}.bias": model[f"{name}.bias"] + model[f"{name}.weight"] @ bias for bias in own.values()}
    return {**model, **shifts}


def mean_feature(space: Workspace, n: int, params: Params, width: int) -> Outcome[Tensor]:
    """Return the mean feature of client n's training samples, (f,) float64; the model is in eval mode."""
    inputs = space.split(n, "train").inputs
    return Outcome(seen(space, n, space.module(n, params), inputs, width).double().mean(dim=0))


def train_client(
    space: Workspace, n: int, params: Params, own: Params, t: int, mean: Tensor, method: FedDBE, epochs: int | None
) -> Outcome[tuple[Params, Params]]:
    """Train the model and z^p on the cross-entropy of head(x + z^p), plus (κ/2)·MSE(running mean of x, z^g)."""
    samples, module = PrivateSamples(space, n, t), space.module(n, params).train()
    memory, passed = nn.ParameterDict({"bias": own["bias"].clone()}), list[Tensor]()
    cross_entropy, target = samples.cross_entropy(module), mean.to(space.device, space.dtype)
    running = [torch.zeros_like(target)]

    def shift(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        passed.append(inputs[0])
        return (inputs[0] + memory["bias"],)

    def loss(batch: Tensor) -> Tensor:
        fit = cross_entropy(batch)
        now = running.pop().lerp(passed.pop().to(target).mean(dim=0), method.momentum)
        running.append(now.detach())
        return fit + method.weight / 2 * (now - target).square().mean()

    with space.head(n, module)[1].register_forward_pre_hook(shift):
        outcome = samples.descend(nn.ModuleList([module, memory]), loss, epochs)
    return outcome.giving((params_of(module), params_of(memory)))
