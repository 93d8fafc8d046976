"""Memory that is used up, said in a sentence that names the settings to change."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.setting import Setting

SAID = re.compile(r"out of memory|can't allocate memory|not enough memory|ALLOC_FAILED")
"""What CUDA, cuBLAS and torch's allocator of the CPU say in errors of their own."""

SMALLER = "choose a smaller image.size, or fewer samples by private.samples or private.classes"
"""What to do where data do not fit."""


def used_up(error: RuntimeError) -> bool:
    """Say whether an error of torch means that a device, or the machine, has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or SAID.search(str(error)) is not None


@contextmanager
def used_up_by(what: str, fix: str = SMALLER) -> Iterator[None]:
    """Say in a sentence that the block used up the memory of this machine.

    Args:
        what: the block does, as the subject of the sentence: ``"Reading the private samples"``.
        fix: what to do about it.

    Raises:
        InputError: in place of the error of an allocator.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not used_up(error):
            raise
        reason = str(error).strip().partition("\n")[0][:200] or "MemoryError"
        raise InputError(f"{what} used up the memory of this machine ({reason}): {fix}.") from error


@contextmanager
def told(who: str, setting: Setting) -> Iterator[None]:
    """Tell of memory that `who` uses up in the block.

    Raises:
        InputError: in the place of torch's error.
    """
    try:
        yield
    except RuntimeError as error:
        if not used_up(error):
            raise
        reason = ". ".join(str(error).split(". ")[:3]).strip(" .\n")  # what was tried, and what the device has
        raise InputError(
            f"{who} used up the memory of {setting.device} ({reason}): set training.batch_size "
            f"({setting.training.batch_size}), distillation.batch_size ({setting.distillation.batch_size}), "
            f"compute.prediction_batch ({setting.compute.prediction_batch}) or compute.server_memory "
            f"({setting.compute.server_memory}) lower, or compute.workers to 1."
        ) from error
