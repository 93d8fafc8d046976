"""FedGen: the server trains a feature generator on the clients' heads, and clients also train on generated features.

Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021, Algorithm 1 with only
the predictor shared, https://arxiv.org/abs/2105.10056. All other steps are the same as in LG-FedAvg.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.features import train_common_head
from ktpfl_pipeline.core.client.sgd import descend
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.recipe import Recipe, batch_sizes
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Params, loaded, params_of, select, wire_bytes
from ktpfl_pipeline.methods.lg_fedavg import CommonHeadState, LGFedAvg

Drawn = tuple[Tensor, Tensor]
"""The input of the generator, which is noise and one-hot classes, (b, noise + K); and the classes, (b,)."""


@dataclass(frozen=True, eq=False)
class FedGenState(CommonHeadState):
    """The state between rounds: each client's model, the shared head, the generator and its class shares.

    Attributes:
        generator: the weights of the generator, a module made by `generator_of`.
        labels: (K,) float64, the share of each class among the training samples of the last cohort; uniform at first.
    """

    generator: Params
    labels: Tensor


@dataclass(frozen=True)
class FedGen(LGFedAvg):
    """FedGen (Zhu et al., 2021): generated features carry knowledge of classes that a client lacks.

    Attributes:
        weight: λ, the weight of the cross-entropy on generated features in the local loss; 1 in the paper (Eq. 5).
        noise: the number of the generator's normally distributed inputs besides the class; as in the authors' code.
        hidden: the number of hidden units of the generator; as in the authors' code.
        rate: the server's step size.
        steps: the server's steps per round.
        batch: the number of generated features per server step.
    """

    title = "FedGen"

    weight: Annotated[float, Ge(0)] = 1.0
    noise: Annotated[int, Ge(1)] = 32
    hidden: Annotated[int, Ge(1)] = 256
    rate: Annotated[float, Gt(0)] = 0.1
    steps: Annotated[int, Ge(1)] = 100
    batch: Annotated[int, Ge(1)] = 128

    def init(self, fed: Federation) -> FedGenState:
        """Start from the initial models, one head and a generator, with uniform class shares."""
        start = super().init(fed)
        with rng.seeded(rng.derive(fed.seed, "initialisation", "generator")):
            generator = generator_of(self.noise + fed.classes, self.hidden, self.dimension)
        params = fed.placed(generator)
        alike = torch.full((fed.classes,), 1.0 / fed.classes, dtype=torch.float64, device=fed.device)
        return FedGenState(start.models, start.head, params, alike)

    def round(self, state: FedGenState, cohort: list[int], t: int, fed: Federation) -> tuple[FedGenState, RoundReport]:
        """Send head and generator, train with both, average the heads, and train the generator on the heads."""
        pairs = select(state.models, cohort), dict.fromkeys(cohort, state.head)
        trained, heads = fed.train_together(train_client, pairs, t, state.generator, state.labels.cpu(), self.weight)
        counts = fed.class_counts(cohort).sum(dim=0)
        labels, recipe = counts.double() / counts.sum(), Recipe(self.steps, self.batch, self.rate)
        generator = fed.fuse("generator", train_generator, state.generator, recipe, t, [*heads.values()], labels)
        up, down = wire_bytes(state.head), wire_bytes(state.head) + wire_bytes(state.generator)
        after = FedGenState({**state.models, **trained}, fed.average(heads), generator, sent(labels, fed.device))
        traffic = dict.fromkeys(cohort, Traffic(parameters_up=up, parameters_down=down))
        return after, RoundReport(trained, traffic)


def generator_of(inputs: int, hidden: int, dimension: int) -> nn.Sequential:
    """Return the generator of a feature, (F,), from noise and a one-hot class: two layers."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, dimension))


def rebuilt(params: Params) -> nn.Module:
    """Return the generator with these weights, on their device."""
    hidden, inputs = params["0.weight"].shape
    return loaded(lambda: generator_of(inputs, hidden, len(params["2.bias"])), params)


def drawn(module: nn.Module, labels: Tensor, sizes: Sequence[int], draws: torch.Generator) -> list[Drawn]:
    """Return generator inputs for batches of the given `sizes`, with classes drawn by the shares `labels`, (K,).

    The inputs are drawn on the host and copied to the device of `module` at once, in the dtype of its weights.
    """
    weight = next(module.parameters())  # (hidden, noise + K)
    classes, noise = [], []
    for size in sizes:
        classes.append(torch.multinomial(labels, size, replacement=True, generator=draws))
        noise.append(torch.randn(size, weight.shape[1] - len(labels), generator=draws, dtype=torch.float64))
    there = sent(torch.cat(classes), weight.device)
    inputs = torch.cat([sent(torch.cat(noise), weight.device), F.one_hot(there, len(labels)).double()], dim=1)
    parts = [torch.split(tensor, list(sizes)) for tensor in (inputs, there)]
    return [(part.to(weight.dtype), own) for part, own in zip(*parts, strict=True)]


def train_client(
    space: Workspace, n: int, params: Params, head: Params, t: int, generator: Params, labels: Tensor, weight: float
) -> Outcome[tuple[Params, Params]]:
    """Train client n's extractor and the shared head on its data, and the head on as many generated features.

    With a `weight` of 0 the training equals LG-FedAvg's training bit for bit.

    Args:
        head: the shared head.
        generator: the weights of the generator, which is not trained here.
        labels: (K,), the shares of the classes, on the host.
        weight: λ, the weight of the loss on generated features.
    """
    make, draws = rebuilt(generator), space.setting.stream("generated features", t, n)
    sizes = batch_sizes(len(space.split(n, "train")), space.setting.training.batch_size)

    def generated() -> Iterator[Drawn]:
        while True:
            for inputs, classes in drawn(make, labels, sizes, draws):  # the batches of one epoch
                with torch.no_grad():
                    features = make(inputs)
                yield features, classes

    return train_common_head(space, n, params, head, t, weight=weight, generated=generated())


def train_generator(
    space: Workspace, name: str, params: Params, recipe: Recipe, t: int, heads: list[Params], labels: Tensor
) -> Outcome[Params]:
    """Train the generator on the cross-entropy of the heads' mean logits for its features (Eq. 4).

    The heads are linear, so their mean logits are the logits of the mean head. The class shares `labels`, (K,), are on
    the host.
    """
    module, draws = rebuilt(params), space.setting.stream("generator", t)
    batches = iter(drawn(module, labels, [recipe.batch_size] * recipe.epochs, draws))
    weight, bias = (torch.stack([head[part] for head in heads]).mean(dim=0) for part in ("weight", "bias"))

    def loss(batch: Tensor) -> Tensor:
        inputs, classes = next(batches)
        return F.cross_entropy(F.linear(module(inputs), weight, bias), classes)

    outcome = descend(space, module, loss, recipe.batch_size, recipe, t, space.setting.stream("generator order", t))
    return outcome.giving(params_of(module))
