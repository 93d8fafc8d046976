"""The cost of training an architecture: floating-point operations per sample, and memory of a step."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ktpfl_pipeline.core import kinds, rng
from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.core.kinds import IMAGES, Kind
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.setting import DTYPES, Setting
from ktpfl_pipeline.core.weights import trained

BACKPROPAGATION = 3
"""The operations of a training step in units of its forward pass. The backward pass takes twice as many as that."""
MOMENTS = {"sgd": 0, "adam": 2, "adamw": 2}
"""The numbers that an optimizer keeps for each parameter; SGD with momentum keeps one (`Cost.training`)."""
FACTORS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}
"""The position of the left matrix among the arguments of torch's operations that multiply two matrices."""


@dataclass(frozen=True)
class Cost:
    """The cost of one architecture."""

    flops: int  #: floating-point operations of one sample's forward pass; a multiplication and an addition count as two
    weights: int  #: bytes of its parameters and buffers
    parameters: int  #: bytes of its trained parameters, which equal the bytes of their gradients
    activations: int  #: bytes that autograd keeps per sample for the backward pass

    def training(self, recipe: Recipe, batch: int) -> int:
        """Return the bytes of a training step: weights, gradients, optimizer state, and a batch's activations."""
        moments = MOMENTS[recipe.optimizer] + (recipe.momentum > 0)
        return self.weights + (1 + moments) * self.parameters + batch * self.activations


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of matrix products, convolutions, recurrent layers and attention.

    Matrix products and convolutions are counted as in torch's `FlopCounterMode`. Its module is imported only if a model
    has attention, because the import also loads torch's compiler and takes two seconds.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0  #: counted so far

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if name in FACTORS:
            self.flops += 2 * found.numel() * args[FACTORS[name]].shape[-1]
        elif name == "mkldnn_rnn_layer":  # a recurrent layer on a CPU, all time steps in one call
            self.flops += 2 * args[0].shape[:2].numel() * (args[1].numel() + args[2].numel())
        elif name == "convolution":
            inputs, weight, transposed = args[0], args[1], args[6]
            pixels = (inputs if transposed else found).shape[2:].numel()
            self.flops += 2 * len(inputs) * pixels * weight.numel()
        elif "attention" in name:
            from torch.utils.flop_counter import flop_registry

            self.flops += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=found)
        return found

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False; otherwise torch imports its compiler, which takes two seconds, only to disable it here."""
        return False


def cost(module: nn.Module, shape: Shape, kind: Kind = IMAGES) -> Cost:
    """Return the cost of a module on the CPU, measured in one forward pass of two zero samples in training mode.

    `Products` counts the operations, and autograd's hooks find the tensors that it keeps. Other operations are not
    counted. There are two samples because BatchNorm cannot train on one.
    """
    own = [*module.parameters(), *module.buffers()]
    weights = {tensor.untyped_storage().data_ptr() for tensor in own}
    saved: dict[int, int] = {}
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)  # keeps its memory in use, so that its address stays unique
        return tensor

    inputs = kind.blank(shape, 2, own[0].dtype)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with rng.seeded(0), Products() as products, hooks:
        F.cross_entropy(module.train()(inputs), torch.zeros(2, dtype=torch.int64))
    parameters = sum(tensor.nbytes for tensor in trained(module))
    return Cost(
        flops=products.flops // 2,
        weights=sum(tensor.nbytes for tensor in own),
        parameters=parameters,
        activations=sum(saved.values()) // 2,
    )


def cost_of(setting: Setting, architecture: str) -> Cost:
    """Return the cost of an architecture with the dtype and the inputs of a federation."""
    with rng.seeded(0):
        module: Any = setting.build(architecture).to(dtype=DTYPES[setting.compute.dtype])
    return cost(module, tuple(setting.public.shape[1:]), kinds.of(setting.public))
