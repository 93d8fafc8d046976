"""Matrix products and convolutions in bfloat16, everything else in float32: torch's autocast, with exceptions on CPUs.

A product in bfloat16 has factors with 8 significant bits, is summed in float32, and is rounded to 8 bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def reduce(module: nn.Module, device: str) -> None:
    """Make the module compute its products in bfloat16, forward and backward; the module returns float32.

    On a CPU there are two exceptions. Grouped (depthwise) convolutions train in float32, because their backward pass in
    oneDNN is several times slower in bfloat16. LSTMs always compute in float32, because oneDNN has no bfloat16 LSTM for
    some CPUs.
    """
    for part in module.modules() if device == "cpu" else ():
        layer: Any = part
        if getattr(part, "groups", 1) > 1:
            layer.forward = _in_float32(layer.forward, training_only=True)
        elif isinstance(part, nn.LSTM):  # oneDNN's bfloat16 LSTM needs support by the CPU
            layer.forward = _in_float32(layer.forward, training_only=False)
    built: Any = module
    forward: Callable[[Tensor], Tensor] = built.forward

    def reduced(inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return forward(inputs).float()

    built.forward = reduced


def _in_float32(forward: Callable[..., Any], *, training_only: bool) -> Callable[..., Any]:
    """Return a layer's `forward` on a CPU with inputs and states in float32.

    With `training_only`, only passes with gradients enabled are in float32.
    """

    def whole(inputs: Tensor, *states: tuple[Tensor, ...] | None) -> Any:
        if training_only and not torch.is_grad_enabled():
            return forward(inputs)
        with torch.autocast("cpu", enabled=False):
            return forward(inputs.float(), *(state and tuple(part.float() for part in state) for state in states))

    return whole
