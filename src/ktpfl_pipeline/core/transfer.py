"""Transfers between the host and a federation's device.

Copies to a GPU do not make the host wait. Copies to the host join several tensors, so that the host waits only once.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on `device`; copies from the host to a GPU use pinned memory and are asynchronous.

    The caching allocator keeps pinned memory until the copy is done. A tensor that is on `device` is not copied.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_host(params: Mapping[str, Tensor]) -> list[Tensor]:
    """Return a model's tensors on the host, in order and with their shapes and dtypes.

    Tensors on a GPU are fetched in one transfer, in the widest of their floating-point dtypes. Integers, such as the
    counters of BatchNorm, are exact up to the size that this dtype represents. If all tensors are on the host, they are
    returned without a copy.
    """
    tensors = list(params.values())
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return tensors
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]


def fetched(numbers: Sequence[Tensor]) -> list[float]:
    """Return scalar tensors, () each and all on one device, as numbers. The host waits for the device once."""
    return torch.stack([number.double() for number in numbers]).tolist() if numbers else []
