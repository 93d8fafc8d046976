"""Tensors between the host and a federation's device: nothing waits on the way there, and numbers come back at once."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on `device`; copies from the host to a GPU use pinned memory and are asynchronous.

    The caching allocator keeps pinned memory until the copy is done. What is on the device is not copied.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_host(params: Mapping[str, Tensor]) -> list[Tensor]:
    """Return a model's floating-point tensors to the host in one wait; on the host they are what they were."""
    tensors = list(params.values())
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return tensors
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]


def fetched(numbers: Sequence[Tensor]) -> list[float]:
    """Return numbers, () each and all on one device, to the host in one wait."""
    return torch.stack([number.double() for number in numbers]).tolist() if numbers else []
