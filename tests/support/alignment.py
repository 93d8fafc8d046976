"""An emulated processor whose BLAS and LAPACK round differently by layout, alignment and number of threads.

Some real processors do the same.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ktpfl_pipeline.core.client.outcome import Outcome, performed
from ktpfl_pipeline.core.executors.base import Calls, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.setting import Setting

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot, aten.vdot, aten._euclidean_dist}
ROUTINES = {aten._linalg_svd, aten._linalg_solve_ex, aten._linalg_eigh, aten.linalg_qr, aten.linalg_lstsq}
MOVING = PRODUCTS | ROUTINES
CLOSE = 2.0**-22
"""The smallest relative difference between two kernels: a few units in the last place of float32."""


class PickyProcessor(TorchDispatchMode):
    """Makes results of BLAS and LAPACK depend on the memory layout of their arguments and on the number of threads."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.overloadpacket not in MOVING:
            return found
        places = [(each.data_ptr() % 64, each.stride()) for each in tree_leaves(args) if isinstance(each, Tensor)]
        threads = torch.get_num_threads() if func.overloadpacket in ROUTINES else 1
        factor = 1.0 + CLOSE * (hash((tuple(places), threads)) % 15)
        return tree_map(lambda part: part * factor if _is_float(part) else part, found)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # dynamo's wrapper doubles the time
        return False


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def moved(value: Any, offset: int) -> Any:
    """Return nested dicts, lists and tuples with each tensor copied to memory that starts `offset` elements later."""

    def copied(tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        room = tensor.new_empty(tensor.numel() + offset)
        return room[offset:].view(tensor.shape).copy_(tensor)

    return tree_map(copied, value)


class MovingExecutor(SerialExecutor):
    """Gives operations unaligned arguments, and returns contiguous copies, as an executor with processes would."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client."""
        space = self.workspace(setting)
        found = {n: performed(operation, space, n, moved(each, self._offset)) for n, each in calls.items()}
        return {n: replace(outcome, value=moved(outcome.value, 0)) for n, outcome in found.items()}
