"""Heads of more than one layer, with which FedCP and GPFL replace a model's linear head.

The model stays one of its architecture. The names of its tensors tell the kind of its head, as with `joint.Joint`: each
kind has a part whose name no layer of an architecture has.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core.weights import Params


def full(x: Tensor) -> Tensor:
    """Return x in float32 at least: with products in bfloat16, everything else stays in float32 on every device."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Normalized(nn.LayerNorm):
    """LayerNorm in float32 at least."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(full(x))


class Gated(nn.Module):
    """FedCP's head: a gate splits the features of each sample between a personal head and a common one."""

    PART = "policy:"
    context: Tensor  # (f,), what the policy knows of the client

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        width = linear.in_features
        self.personal, self.common = linear, copy.deepcopy(linear)
        self.add_module(self.PART, nn.Sequential(nn.Linear(width, 2 * width), Normalized(2 * width), nn.ReLU()))
        self.register_buffer("context", torch.zeros(width))
        self.noisy = False  # whether training adds Gumbel noise to the gate

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the logits, (b, K), of both heads for their shares of the features x, (b, f)."""
        scores = getattr(self, self.PART)(x * self.context).unflatten(1, (2, -1))  # (b, 2, f)
        shares = F.gumbel_softmax(scores, dim=1) if self.training and self.noisy else scores.softmax(dim=1)
        logits: Tensor = self.personal(x * shares[:, 0]) + self.common(x * shares[:, 1])
        return logits


class Valved(nn.Module):
    """GPFL's head: a valve turns features into generic or personalized ones, of which the head reads the latter."""

    PART = "valve:"
    contexts: Tensor  # (2, f), the valve's inputs for generic and for personalized features

    def __init__(self, linear: nn.Linear) -> None:
        """Use `linear` as the head of personalized features."""
        super().__init__()
        width = linear.in_features
        self.linear = linear
        branches = [nn.Sequential(nn.Linear(width, width), nn.ReLU(), Normalized(width)) for _ in range(2)]
        self.add_module(self.PART, nn.ModuleList(branches))
        self.embedding = nn.Parameter(torch.randn(linear.out_features, width))  # (K, f), of the classes
        self.register_buffer("contexts", torch.zeros(2, width))

    @property
    def branches(self) -> nn.Module:
        found: nn.Module = getattr(self, self.PART)
        return found

    def valve(self, x: Tensor, context: Tensor) -> Tensor:
        """Return relu(x ∘ (γ(v) + 1) + β(v)), (b, f), for features x, (b, f), and a context v, (f,)."""
        gamma, beta = (branch(context) for branch in self.branches.children())
        return torch.relu(x * (gamma + 1.0) + beta)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (b, K), of the personalized features."""
        logits: Tensor = self.linear(self.valve(x, self.contexts[1]))
        return logits


KINDS = (Gated, Valved)


def kind_of(params: Params) -> type[Gated] | type[Valved] | None:
    """Return the kind of the head in a model; None for the head of its architecture."""
    return next((kind for kind in KINDS if any(f".{kind.PART}." in name for name in params)), None)


def replaced(module: nn.Module, name: str, kind: type[Gated] | type[Valved]) -> nn.Module:
    """Return the module with its linear head, called `name`, replaced by one of this kind, which contains it."""
    linear = module.get_submodule(name)
    assert isinstance(linear, nn.Linear)
    module.set_submodule(name, kind(linear))
    return module
