"""Memory that is used up, said in a sentence that names the settings to change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ktpfl_pipeline.core.errors import InputError, used_up

if TYPE_CHECKING:
    from ktpfl_pipeline.core.setting import Setting

SMALLER = "choose a smaller image.size, or fewer samples by private.samples or private.classes"
"""What to do where data do not fit."""


@contextmanager
def used_up_by(what: str, fix: str = SMALLER) -> Iterator[None]:
    """Replace errors of the block that mean the memory of this machine is used up.

    Args:
        what: the block does, as the subject of the sentence: ``"Reading the private samples"``.
        fix: what to do about it.

    Raises:
        InputError: in place of the error of an allocator.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not used_up(error):
            raise
        reason = str(error).strip().partition("\n")[0][:200] or "MemoryError"
        raise InputError(
            f"{what} used up the memory of this machine ({reason}): {fix}, and give the same command again."
        ) from error


@contextmanager
def told(who: str, setting: "Setting") -> Iterator[None]:
    """Replace torch's out-of-memory errors in the block by a message that names `who`.

    Raises:
        InputError: instead of torch's error.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not used_up(error):
            raise
        said = str(error) or "MemoryError"
        reason = ". ".join(said.split(". ")[:3]).strip(" .\n")  # what was tried, and what the device has
        raise InputError(
            f"{who} used up the memory of {setting.device} ({reason}): set training.batch_size "
            f"({setting.training.batch_size}), distillation.batch_size ({setting.distillation.batch_size}), "
            f"compute.prediction_batch ({setting.compute.prediction_batch}) or compute.server_memory "
            f"({setting.compute.server_memory}) lower, or compute.executor to serial. Then "
            "give the same command again: it continues after the last finished round."
        ) from error
