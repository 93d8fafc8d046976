"""Errors for exhausted memory, whose messages name the settings to change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ktpfl_pipeline.core.errors import InputError, used_up

if TYPE_CHECKING:
    from ktpfl_pipeline.core.setting import Setting


@contextmanager
def used_up_by(what: str, setting: "Setting | None" = None) -> Iterator[None]:
    """Replace errors about exhausted memory in the block by an InputError that says what used up the memory.

    `what` is the subject of the message: the action of the block, such as ``"Reading the private samples"``, or the
    participant that computes in it, such as ``"The server"``. `setting` is the run's setting; None if data are prepared
    on this machine before a run.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not used_up(error):
            raise
        first = str(error).strip().partition("\n")[0] or "MemoryError"
        reason = ". ".join(first.split(". ")[:3]).strip(" .")  # the failed allocation, and the device's memory
        if setting is None:
            where = "this machine"
            fix = (
                "choose a smaller image.size, or fewer samples by private.samples or private.classes, and give the "
                "same command again."
            )
        else:
            own, distillation, compute = setting.training, setting.distillation, setting.compute
            where = str(setting.device)
            fix = (
                f"set training.batch_size ({own.batch_size}), distillation.batch_size ({distillation.batch_size}), "
                f"compute.prediction_batch ({compute.prediction_batch}) or compute.server_memory "
                f"({compute.server_memory}) lower, or compute.executor to serial. Then give the same command again: it "
                "continues after the last finished round."
            )
        raise InputError(f"{what} used up the memory of {where} ({reason}): {fix}") from error
