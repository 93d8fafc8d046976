"""pFedHN: a hypernetwork on the server generates each client's model from a learned embedding of the client.

Shamsian, Navon, Fetaya, Chechik: Personalized Federated Learning using Hypernetworks, ICML 2021, Algorithm 1,
https://arxiv.org/abs/2103.04628. The figures of the KT-pFL paper call the method FedHN.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, Params, select, vector_of, with_vector


@dataclass(frozen=True, eq=False)
class PFedHNState:
    """The state between rounds.

    Attributes:
        weights: φ, the weights of the hypernetwork.
        velocity: the momentum buffers of φ.
        embeddings: v, (N, e), the embeddings of the clients.
        embedding_velocity: (N, e), the momentum buffers of the embeddings.
        untrained: the tensors that the hypernetwork does not generate, such as BatchNorm's statistics, of each client
            after its last training.
    """

    weights: Params
    velocity: Params
    embeddings: Tensor
    embedding_velocity: Tensor
    untrained: Models


@dataclass(frozen=True)
class PFedHN(Method[PFedHNState]):
    """pFedHN (Shamsian et al., 2021): a hypernetwork maps each client's embedding to its model.

    The server takes a step after each client, in an order that is drawn in every round. The last layer starts with the
    initial model as its bias and zero weights, so this method starts with the same models as all other methods. The
    original draws the last layer at random.

    Attributes:
        hidden: the width of the hypernetwork; 100 in the paper. The last layer has `hidden` times as many weights as
            the model has parameters, so the default is 32, for machines without a GPU.
        layers: the number of hidden layers after the first; 3 in the authors' code.
        rate: the server's step size; 0.01 in the authors' code.
        momentum: the momentum of the server's SGD; 0.9 in the authors' code.
        decay: the weight decay of φ; 0.001 in the authors' code. Embeddings have no weight decay, so the embedding of a
            client outside the cohort does not change.
        clip: the largest norm of a server gradient; 50 in the authors' code.
    """

    title = "pFedHN"
    covered = True
    exchanges = frozenset({"parameters"})
    one_architecture = True
    paper_name = "FedHN"

    hidden: Annotated[int, Ge(1)] = 32
    layers: Annotated[int, Ge(0)] = 3
    rate: Annotated[float, Ge(0)] = 0.01
    momentum: Annotated[float, Interval(ge=0, le=1)] = 0.9
    decay: Annotated[float, Ge(0)] = 0.001
    clip: Annotated[float, Ge(0)] = 50.0

    def init(self, fed: Federation) -> PFedHNState:
        """Draw the hypernetwork and the embeddings; every client's model is the initial one."""
        model, names = fed.initial_model(fed.architecture), fed.trained_names
        start, size = vector_of(model, names), int(1 + len(fed.clients) / 4)  # e
        weights = initial_hypernetwork(start, size, self.hidden, self.layers, fed.stream("hypernetwork"))
        bound = 3.0**0.5  # variance 1
        embeddings = torch.stack(
            [uniform(size, bound=bound, like=start, stream=fed.stream("hypernetwork", n)) for n in fed.by_id]
        )
        velocity = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
        untrained: Params = {name: tensor for name, tensor in model.items() if name not in names}
        rest = dict.fromkeys(fed.by_id, untrained)
        return PFedHNState(weights, velocity, embeddings, torch.zeros_like(embeddings), rest)

    def round(self, state: PFedHNState, cohort: list[int], t: int, fed: Federation) -> tuple[PFedHNState, RoundReport]:
        """For one client after another, generate its model, train it, and update the server with the model's change."""
        after = deepcopy(state)  # as large as about `hidden` models; `step` changes it in place
        trained: Models = {}
        rows = dict(zip(cohort, fed.places(cohort), strict=True))
        for n in sorted(cohort, key=lambda n: float(torch.rand((), generator=fed.stream("order", t, n)))):
            v = after.embeddings[rows[n]].clone()
            theta = generate(after.weights, v)  # (d,), h(v_n; φ)
            trained |= fed.train({n: self.assemble(state, n, theta, fed)}, t)
            change = theta - vector_of(trained[n], fed.trained_names)  # Δθ, in the direction of a gradient
            self.step(after, rows[n], *pulled_back(after.weights, v, change, self.clip))
            after.untrained[n] = {name: trained[n][name] for name in state.untrained[n]}
        after_local = select(trained, cohort)
        return after, RoundReport(after_local, exchange.both_ways(after_local))

    def step(self, server: PFedHNState, row: int, slopes: Params, slope: Tensor) -> None:
        """Take one SGD step with momentum, in place: φ along (∇_φ θ)ᵀ Δθ, the client's embedding along (∇_v θ)ᵀ Δθ."""
        for name, tensor in server.weights.items():
            server.velocity[name].mul_(self.momentum).add_(slopes[name]).add_(tensor, alpha=self.decay)
            tensor.sub_(server.velocity[name], alpha=self.rate)
        server.embedding_velocity[row] = self.momentum * server.embedding_velocity[row] + slope
        server.embeddings[row] -= self.rate * server.embedding_velocity[row]

    def assemble(self, state: PFedHNState, n: int, theta: Tensor, fed: Federation) -> Params:
        """Return client n's model with the weights `theta`, (d,).

        All other tensors have the values of the client's last training, or initial values for a new client.
        """
        model = {**fed.initial_model(fed.architecture), **state.untrained.get(n, {})}
        return with_vector(model, fed.trained_names, theta)

    def personal(self, state: PFedHNState, clients: Iterable[int], fed: Federation) -> Models:
        """Return the model that the hypernetwork generates for each client, without local training."""
        embeddings = dict(zip(fed.by_id, state.embeddings, strict=True))
        made = {n: generate(state.weights, embeddings[n]) for n in clients}
        return {n: self.assemble(state, n, theta, fed) for n, theta in made.items()}

    def join(self, state: PFedHNState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Give new clients the hypernetwork's model for the mean embedding."""
        theta = generate(state.weights, state.embeddings.mean(dim=0))
        return given({n: self.assemble(state, n, theta, fed) for n in newcomers})


def uniform(*shape: int, bound: float, like: Tensor, stream: torch.Generator) -> Tensor:
    """Return uniform numbers in [-bound, bound], drawn on the CPU, with device and dtype of `like`."""
    drawn = (2.0 * torch.rand(shape, generator=stream, dtype=torch.float64) - 1.0) * bound
    return sent(drawn, like.device).to(like.dtype)


def initial_hypernetwork(start: Tensor, inputs: int, hidden: int, layers: int, stream: torch.Generator) -> Params:
    """Return the weights φ of a network that maps every embedding to `start`: its last layer has zero weights.

    Args:
        start: the output, (d,).
        inputs: e, the size of an embedding.
        hidden: the width.
        layers: the number of hidden layers after the first.
        stream: the random stream of the hidden layers, which are uniform within torch's default bound for linear
            layers.
    """
    weights: dict[str, Tensor] = {}
    for layer, width in enumerate([inputs, *[hidden] * layers]):
        weights[f"{layer}.weight"] = uniform(hidden, width, bound=width**-0.5, like=start, stream=stream)
        weights[f"{layer}.bias"] = uniform(hidden, bound=width**-0.5, like=start, stream=stream)
    return {**weights, "head.weight": start.new_zeros(len(start), hidden), "head.bias": start}


def generate(weights: Params, embedding: Tensor) -> Tensor:
    """Return h(v; φ), (d,), for one embedding v, (e,)."""
    x = F.linear(embedding, weights["0.weight"], weights["0.bias"])
    for layer in range(1, len(weights) // 2 - 1):
        x = F.linear(F.relu(x), weights[f"{layer}.weight"], weights[f"{layer}.bias"])
    return F.linear(x, weights["head.weight"], weights["head.bias"])


def pulled_back(weights: Params, embedding: Tensor, change: Tensor, clip: float) -> tuple[Params, Tensor]:
    """Return (∂h/∂φ)ᵀ Δ and (∂h/∂v)ᵀ Δ for a change Δ, (d,), of the output, clipped to the joint norm `clip`."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    v = embedding.detach().clone().requires_grad_()
    made = generate(leaves, v)
    gradients = torch.autograd.grad(made, [*leaves.values(), v], change.clone())  # it becomes the last bias's gradient
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    scale = torch.clamp(clip / (norm + 1e-6), max=1.0)
    *slopes, slope = [gradient.mul_(scale) for gradient in gradients]  # in place, because the last layer is large
    return dict(zip(leaves, slopes, strict=True)), slope
