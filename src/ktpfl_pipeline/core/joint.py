"""Models of several parts: heads of more than one layer, and two models as one.

The names of tensors tell the parts, so `built` can make the module from an architecture, names and shapes:

- `Gated` (FedCP) and `Valved` (GPFL) replace a model's linear head. Each has a part whose name no layer of an
  architecture has.
- `Joint` (FedMRL): the head of the client's own model reads a projection of the features of its own extractor and of a
  small common one. ``own`` is the own extractor, ``head`` its head, ``common`` the common extractor, and ``projector:``
  with the common model's architecture the projector.
- `Ensemble` (FedAPEN): ``own`` and ``common`` are whole models, and ``share:`` with the architecture of the common one
  is the weight of the own one.
"""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ktpfl_pipeline.core.weights import Params

PREFIX, SHARE = "projector:", "share:"


def pooled(features: Tensor, dimension: int) -> Tensor:
    """Return features, (b, f), pooled to F = `dimension` numbers, (b, F): averages of neighbors, times √(f/F).

    With F = f the result equals the features bit for bit. The norm does not change if averaged neighbors are equal, or
    if F is a multiple of f, so that each feature is repeated.
    """
    scale = math.sqrt(features.shape[1] / dimension)
    return F.adaptive_avg_pool1d(features, dimension) * scale


class Pool(nn.Module):
    """`pooled` as a layer."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def forward(self, features: Tensor) -> Tensor:
        """Return the features, (b, f), pooled to (b, F)."""
        return pooled(features, self.dimension)


def full(x: Tensor) -> Tensor:
    """Return x in float32 at least: with products in bfloat16, everything else stays in float32 on every device."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Normalized(nn.LayerNorm):
    """LayerNorm in float32 at least."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalized values, in float32 at least."""
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
        """The layers that compute γ and β from a context."""
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


class Joint(nn.Module):
    """The own and the common extractor, the projector of both features, and the own head."""

    def __init__(
        self, own: nn.Module, common: nn.Module, architecture: str, dimension: int, heads: tuple[str, str]
    ) -> None:
        """Combine two models, which are changed: their heads are removed, and the common head is not used.

        Args:
            own: the client's own model.
            common: the common model.
            architecture: the name of the common model's architecture.
            dimension: d₁, the number to which the common features are pooled.
            heads: the names of the heads of both models; the own head is a linear layer.
        """
        super().__init__()
        self.dimension = dimension  #: d₁, of the common features
        self._projector = projector_name(architecture)
        head = own.get_submodule(heads[0])
        assert isinstance(head, nn.Linear)
        for module, name in zip((own, common), heads, strict=True):
            module.set_submodule(name, nn.Identity())
        self.own, self.common = own, common
        self.pool = Pool(dimension)
        self.add_module(self._projector, nn.Linear(dimension + head.in_features, head.in_features))
        self.head = head  # added last, because it is the last layer of the joint model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the own head's logits, (b, K), for the projected features of both extractors."""
        general = self.pool(self.common(inputs).flatten(1))  # (b, d₁)
        both = torch.cat([general, self.own(inputs).flatten(1)], dim=1)
        fused: Tensor = getattr(self, self._projector)(both)  # (b, d₂)
        logits: Tensor = self.head(fused)
        return logits


class Ensemble(nn.Module):
    """The weighted mean of the logits of two models."""

    def __init__(self, own: nn.Module, common: nn.Module, architecture: str) -> None:
        """Combine two models; `architecture` is the common one's."""
        super().__init__()
        self.own, self.common, self._share = own, common, SHARE + architecture.replace(".", "/")
        self.register_buffer(self._share, torch.zeros(()))  # λ, the weight of the own model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return λ z_own + (1 - λ) z_common, (b, K)."""
        share: Tensor = getattr(self, self._share)
        logits: Tensor = share * self.own(inputs) + (1.0 - share) * self.common(inputs)
        return logits


def ensemble(own: Params, common: Params, architecture: str, share: float) -> Params:
    """Return an `Ensemble` as a model; `architecture` is the common one's, and `share` the weight of the own one."""
    parts = {f"{part}.{key}": value for part, of in (("own", own), ("common", common)) for key, value in of.items()}
    weight = next(value for value in own.values() if value.is_floating_point())
    return {**parts, SHARE + architecture.replace(".", "/"): weight.new_tensor(share)}


def projector_name(architecture: str) -> str:
    """Return the name of the projector in a joint model with this common architecture; torch allows no dots in it."""
    return PREFIX + architecture.replace(".", "/")


def common_of(params: Params) -> str:
    """Return the architecture of the common part of a model of two; empty if it is a single model."""
    found = next((name for name in params if name.startswith((PREFIX, SHARE))), "")
    return found.partition(".")[0].partition(":")[2].replace("/", ".")


def built(
    build: Callable[[str], nn.Module], head: Callable[[str], str], architecture: str, params: Params
) -> nn.Module:
    """Return a new module into which `params`, the model of a client with this architecture, can be loaded.

    It is a `Joint` if `params` are a joint model, and has another head if `kind_of` finds one. `build` makes a
    module of an architecture; `head` returns the name of an architecture's head.
    """
    if kind := kind_of(params):
        return replaced(build(architecture), head(architecture), kind)
    if not (common := common_of(params)):
        return build(architecture)
    if any(name.startswith(SHARE) for name in params):
        return Ensemble(build(architecture), build(common), common)
    width, both = params[f"{projector_name(common)}.weight"].shape
    names = head(architecture), head(common)
    return Joint(build(architecture), build(common), common, both - width, names)
