"""A device that is none: tensors that say they are elsewhere, and an error where a GPU would raise one.

Numbers are computed on the CPU. Refused are operations on tensors of both places (but of one number, and indices, as a
GPU allows), and draws from the CPU's generators. It is torch's device ``lazy``, the only one that needs no driver.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = "lazy"
ATEN = torch.ops.aten
INDEXED = (ATEN.index.Tensor, ATEN.index_put_.default, ATEN._index_put_impl_.default)


class There(Tensor):
    """A tensor on the device."""

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        layout = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, here.size(), **layout, device=DEVICE)

    def __init__(self, here: Tensor) -> None:
        self.here = here

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(torch.as_tensor(place) if isinstance(place, list) else place)

    def tolist(self) -> Any:
        Device.waits += 1
        return self.here.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Inside it the device is there.

    Attributes:
        waits: how often the host has waited for the device since it was set to 0.
    """

    waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def here(value: Any) -> Any:
    return value.here if isinstance(value, There) else value


def tensor(data: Any, *, make: Any = torch.tensor, device: Any = None, dtype: Any = None) -> Tensor:
    """Stand for `torch.tensor`, which no mode sees."""
    return make(data, dtype=dtype).to(device)


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    there = any(isinstance(value, There) for value in tensors)
    asked = kwargs.pop("device", None)
    if func is ATEN.copy_.default:
        here(args[0]).copy_(here(args[1]))
        return args[0]
    if func in INDEXED:
        there = isinstance(args[0], There)
        tensors = [] if there else tensors
    elif func is ATEN._to_copy.default:
        Device.waits += there and asked is not None and asked.type == "cpu"
        tensors = []
    Device.waits += there and func is ATEN._local_scalar_dense.default
    if len({isinstance(value, There) for value in tensors if value.dim() or isinstance(value, There)}) > 1:
        raise RuntimeError(f"{func} has tensors on two devices")
    there = there if asked is None else asked.type == DEVICE
    if there and kwargs.get("generator") is not None:
        raise RuntimeError(f"{func} draws there from a generator of the CPU")
    found = func(*tree_map(here, args), **tree_map(here, kwargs))
    if not there:
        return found
    known = {id(here(value)): value for value in tensors}

    def sent(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else There(value)  # an operation in place returns what it changed

    return tree_map(sent, found)
