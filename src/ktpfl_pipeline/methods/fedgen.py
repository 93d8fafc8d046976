"""FedGen: a generator of features, which the server trains on the clients' heads, tells each what others have seen.

Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021, Algorithm 1 with only
the predictor shared, https://arxiv.org/abs/2105.10056. The rest is LG-FedAvg's.
"""

from dataclasses import dataclass
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.features import train_wearing
from ktpfl_pipeline.core.client.graphs import Tensors
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.setting import DTYPES
from ktpfl_pipeline.core.weights import Models, Params, average, params_of, wire_bytes
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg


@dataclass(frozen=True, eq=False)
class FedGenState(CommonHeadState):
    """What crosses rounds: each client's model, the common head, and what the server generates features by.

    Attributes:
        generator: weights of `generator_of`.
        labels: (K,) float64, the share of each class among the training samples of the last cohort; at first all alike.
    """

    generator: Params
    labels: Tensor


@dataclass(frozen=True)
class FedGen(LGFedAvg):
    """Key idea: features on which all heads agree are knowledge of classes that a client does not have.

    Attributes:
        dimension: F, the common dimension of the features.
        weight: of the cross-entropy of generated features in the local loss; 1 in the paper (Eq. 5).
        noise: normal numbers that a feature is made from, beside its class.
        hidden: units of the generator.
        rate: the server's step size.
        steps: of the server in a round.
        batch: features in each.
    """

    title = "FedGen"
    private_data = "its own training rule and label counts"

    weight: Annotated[float, Ge(0)] = 1.0
    noise: Annotated[int, Ge(1)] = 32
    hidden: Annotated[int, Ge(1)] = 256
    rate: Annotated[float, Gt(0)] = 0.1
    steps: Annotated[int, Ge(1)] = 100
    batch: Annotated[int, Ge(1)] = 128

    def init(self, fed: Federation) -> FedGenState:
        """Start from the common initial models, one head, and a generator; classes are alike."""
        start = super().init(fed)
        with rng.seeded(rng.derive(fed.seed, "initialisation", "generator")):
            generator = generator_of(self.noise + fed.classes, self.hidden, self.dimension)
        params = params_of(generator.to(fed.device, DTYPES[fed.compute.dtype]))
        alike = torch.full((fed.classes,), 1.0 / fed.classes, dtype=torch.float64, device=fed.device)
        return FedGenState(start.models, start.head, params, alike)

    def round(
        self, state: CommonHeadState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[CommonHeadState, RoundReport]:
        """Send head and generator, train with both, average the heads, train the generator on them."""
        old = cast("FedGenState", state)
        before = {n: (old.models[n], old.head) for n in cohort}
        calls = {n: (*before[n], old.generator, old.labels, self.weight, t) for n in cohort}
        found = fed.run_training("train", train_client, calls, before, uses="trains with generated features")
        trained: Models = {n: params for n, (params, _) in found.items()}
        heads = [found[n][1] for n in cohort]
        counts = torch.stack([fed.by_id[n].train.labels.bincount(minlength=fed.classes) for n in cohort]).sum(dim=0)
        labels = (counts.double() / counts.sum()).to(fed.device)
        recipe = Recipe(self.steps, self.batch, self.rate)
        server = {"generator": (old.generator, heads, labels, recipe, t)}
        made = fed.run_training("fuse", train_generator, server, {"generator": old.generator}, recipe=recipe)
        up, down = wire_bytes(old.head), wire_bytes(old.head) + wire_bytes(old.generator)
        after = FedGenState(
            {**old.models, **trained}, average(heads, fed.data_weights(cohort)), made["generator"], labels
        )
        traffic = dict.fromkeys(cohort, Traffic(parameters_up=up, parameters_down=down))
        return after, RoundReport(trained, traffic)


def generator_of(inputs: int, hidden: int, dimension: int) -> nn.Sequential:
    """Return what makes a feature, (F,), from noise and a class as one-hot vector: two layers."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, dimension))


def loaded(params: Params) -> nn.Sequential:
    """Return the generator with these weights, where they are."""
    hidden, inputs = params["0.weight"].shape
    with rng.seeded(0):
        module = generator_of(inputs, hidden, len(params["2.bias"])).to(params["2.bias"])
    module.load_state_dict(params)
    return module


def generated(module: nn.Sequential, labels: Tensor, number: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return `number` features, (b, F), and their classes, (b,), drawn with the shares `labels`, (K,)."""
    weight = next(module.parameters())  # (hidden, noise + K)
    classes = torch.multinomial(labels.cpu(), number, replacement=True, generator=draws)
    noise = torch.randn(number, weight.shape[1] - len(labels), generator=draws, dtype=torch.float64)
    inputs = torch.cat([noise, F.one_hot(classes, len(labels)).double()], dim=1)
    features: Tensor = module(inputs.to(weight))
    return features, classes.to(weight.device)


def train_client(
    space: Workspace, n: int, params: Params, head: Params, generator: Params, labels: Tensor, weight: float, t: int
) -> Outcome[tuple[Params, Params]]:
    """Train client n's extractor and the common head on its data, and the head on as many generated features.

    Without `weight` this is LG-FedAvg's training, to the bit.

    Args:
        space: the process's workspace.
        n: the client.
        params: its model.
        head: the common one.
        generator: weights of the generator, which stays as it is.
        labels: (K,) shares of the classes.
        weight: of the generated features' loss.
        t: the round.
    """
    make, draws = loaded(generator), space.setting.stream("generated features", t, n)

    @torch.no_grad()
    def generate(number: int) -> Tensors:
        return generated(make, labels, number, draws)

    return train_wearing(space, n, params, head, t, weight, generate)


def train_generator(
    space: Workspace, name: str, params: Params, heads: list[Params], labels: Tensor, recipe: Recipe, t: int
) -> Outcome[Params]:
    """Train the generator on the cross-entropy of the heads' mean logits of its features with their classes (Eq. 4)."""
    module, draws = loaded(params), space.setting.stream("generator", t)
    weight, bias = (torch.stack([head[part] for head in heads]).mean(dim=0) for part in ("weight", "bias"))

    def loss(batch: Tensor) -> Tensor:
        features, classes = generated(module, labels, len(batch), draws)
        return F.cross_entropy(F.linear(features, weight, bias), classes)

    value = descend(space, module, loss, recipe.batch_size, recipe, t, space.setting.stream("generator order", t))
    return Outcome(params_of(module), value)
