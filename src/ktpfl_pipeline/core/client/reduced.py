"""Products of matrices and convolutions in bfloat16, all else in float32: autocast, and two remedies on CPUs.

A product in bfloat16 takes factors of 8 significant bits, adds up in float32, and rounds the sum to 8 bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def reduce(module: nn.Module, device: str) -> None:
    """Make the module compute its products in bfloat16, forward and backward; it returns float32.

    A depthwise convolution is not a product of matrices: backward, oneDNN takes several times as long in bfloat16.
    Those are in float32 on a CPU while they train; on a GPU they would only cast more.
    """
    for part in module.modules() if device == "cpu" else ():
        layer: Any = part
        if getattr(part, "groups", 1) > 1:
            layer.forward = _in_float32(layer.forward, training_only=True)
        elif isinstance(part, nn.LSTM):  # oneDNN has none without the instructions
            layer.forward = _in_float32(layer.forward, training_only=False)
    built: Any = module
    forward: Callable[[Tensor], Tensor] = built.forward

    def reduced(inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return forward(inputs).float()

    built.forward = reduced


def _in_float32(forward: Callable[..., Any], *, training_only: bool) -> Callable[..., Any]:
    """Return `forward` of a layer on a CPU in float32: of its inputs, and of states that it was given.

    `training_only` is where a gradient is taken.
    """

    def whole(inputs: Tensor, *states: tuple[Tensor, ...] | None) -> Any:
        if training_only and not torch.is_grad_enabled():
            return forward(inputs)
        with torch.autocast("cpu", enabled=False):
            return forward(inputs.float(), *(state and tuple(part.float() for part in state) for state in states))

    return whole
