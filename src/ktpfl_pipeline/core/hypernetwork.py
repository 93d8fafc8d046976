"""A network on the server that makes the weights of a client's model from an embedding of the client.

A multilayer perceptron as in Shamsian et al. 2021 (https://arxiv.org/abs/2103.04628), its weights in a dictionary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core.weights import Params


def uniform(*shape: int, bound: float, like: Tensor, stream: torch.Generator) -> Tensor:
    """Return numbers drawn between -bound and bound, drawn on the CPU, on the device and of the dtype of `like`."""
    return ((2.0 * torch.rand(shape, generator=stream, dtype=torch.float64) - 1.0) * bound).to(like)


def initial(start: Tensor, inputs: int, hidden: int, layers: int, stream: torch.Generator) -> Params:
    """Return the weights φ of a network that makes `start`, (d,), of every embedding: its last layer is a bias.

    Args:
        start: what it makes.
        inputs: e, the size of an embedding.
        hidden: width.
        layers: hidden layers after the first.
        stream: draws the hidden layers, within torch's default bound for a linear layer.
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
    """Return (∂h/∂φ)ᵀ Δ and (∂h/∂v)ᵀ Δ for a change Δ, (d,), of what is made, their common norm at most `clip`."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    v = embedding.detach().clone().requires_grad_()
    made = generate(leaves, v)
    gradients = torch.autograd.grad(made, [*leaves.values(), v], change.clone())  # the last bias's is that very tensor
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    scale = torch.clamp(clip / (norm + 1e-6), max=1.0)
    *slopes, slope = [gradient.mul_(scale) for gradient in gradients]  # in place: the last layer's is large
    return dict(zip(leaves, slopes, strict=True)), slope
