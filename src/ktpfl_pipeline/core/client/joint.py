"""Two models as one, as FedMRL's clients use them: a small common extractor's features go into the own model's head.

The tensors say what they belong to: names that begin with ``own`` to the own extractor, with ``head`` to its head, with
``common`` to the common extractor, and with ``projector:`` and the common model's architecture to what is between.
So whoever has a model's tensors can build its module.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.client.pooling import Pool
from ktpfl_pipeline.core.weights import Params

PREFIX = "projector:"


class Joint(nn.Module):
    """Own and common extractor, the projector of both features, and the own head."""

    def __init__(
        self, own: nn.Module, common: nn.Module, architecture: str, dimension: int, heads: tuple[str, str]
    ) -> None:
        """Split both models into parameters and buffers; the common one has the name `architecture` and no head.

        `heads` are the names of both heads, linear layers.
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
        self.head = head  # last: it is the head of the whole

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the own head's logits, (b, K), of both extractors' projected features."""
        general = self.pool(self.common(inputs).flatten(1))  # (b, d₁)
        both = torch.cat([general, self.own(inputs).flatten(1)], dim=1)
        fused: Tensor = getattr(self, self._projector)(both)  # (b, d₂)
        logits: Tensor = self.head(fused)
        return logits


def projector_name(architecture: str) -> str:
    """Return the name of the projector in a joint model with this common architecture; torch allows no dots in it."""
    return PREFIX + architecture.replace(".", "/")


def common_of(params: Params) -> str:
    """Return the architecture of a joint model's common part; empty, where the model is not a joint one."""
    found = next((name for name in params if name.startswith(PREFIX)), "")
    return found.partition(".")[0].removeprefix(PREFIX).replace("/", ".")


def built(
    build: Callable[[str], nn.Module], head: Callable[[str], str], architecture: str, params: Params
) -> nn.Module:
    """Return a new module that the model `params` of a client with this architecture fits.

    `build` makes a module from an architecture's name; `head` returns the name of its head: a joint model needs two.
    """
    if not (common := common_of(params)):
        return build(architecture)
    width, both = params[f"{projector_name(common)}.weight"].shape
    heads = head(architecture), head(common)
    return Joint(build(architecture), build(common), common, both - width, heads)
