"""Two models as one module, as FedMRL's clients use them.

The features of a small common extractor and of the client's own extractor are projected together, and the projection
enters the head of the client's own model. The names of tensors tell the part to which they belong: ``own`` is the own
extractor, ``head`` its head, ``common`` the common extractor, and ``projector:`` with the common model's architecture
the projector. So `built` can make the module from the names and shapes of its tensors.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client import heads
from ktpfl_pipeline.core.client.pooling import Pool
from ktpfl_pipeline.core.weights import Params

PREFIX = "projector:"


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


def projector_name(architecture: str) -> str:
    """Return the name of the projector in a joint model with this common architecture; torch allows no dots in it."""
    return PREFIX + architecture.replace(".", "/")


def common_of(params: Params) -> str:
    """Return the architecture of a joint model's common part; empty if the model is not a joint one."""
    found = next((name for name in params if name.startswith(PREFIX)), "")
    return found.partition(".")[0].removeprefix(PREFIX).replace("/", ".")


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
    width, both = params[f"{projector_name(common)}.weight"].shape
    names = head(architecture), head(common)
    return Joint(build(architecture), build(common), common, both - width, names)
