"""Two models as one module, as clients of FedMRL and FedAPEN use them.

The names of tensors tell the part to which they belong, so `built` can make the module from names and shapes:

- `Joint` (FedMRL): the features of a small common extractor and of the client's own extractor are projected together,
  and the projection enters the head of the client's own model. ``own`` is the own extractor, ``head`` its head,
  ``common`` the common extractor, and ``projector:`` with the common model's architecture the projector.
- `Ensemble` (FedAPEN): ``own`` and ``common`` are whole models, and ``share:`` with the architecture of the common one
  is the weight of the own one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client import heads
from ktpfl_pipeline.core.client.pooling import Pool
from ktpfl_pipeline.core.weights import Params

PREFIX, SHARE = "projector:", "share:"


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

    It is a `Joint` if `params` are a joint model, and has another head if `heads.kind_of` finds one. `build` makes a
    module of an architecture; `head` returns the name of an architecture's head.
    """
    if kind := heads.kind_of(params):
        return heads.replaced(build(architecture), head(architecture), kind)
    if not (common := common_of(params)):
        return build(architecture)
    if any(name.startswith(SHARE) for name in params):
        return Ensemble(build(architecture), build(common), common)
    width, both = params[f"{projector_name(common)}.weight"].shape
    names = head(architecture), head(common)
    return Joint(build(architecture), build(common), common, both - width, names)
