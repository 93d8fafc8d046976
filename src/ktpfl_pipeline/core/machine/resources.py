"""The cores, memory and GPUs of the machine that this process may use, and errors for exhausted memory.

Limits of a container are respected.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ktpfl_pipeline.core.errors import InputError, used_up

if TYPE_CHECKING:
    from ktpfl_pipeline.core.setting import Setting

CGROUP = Path("/sys/fs/cgroup")
MAX_BYTES = 16 * 2**30
"""The most bytes read from a source or a file of weights: a zip file of a few megabytes may claim petabytes."""
PER_WORKER = 1_500_000_000
"""Bytes that one worker may need: torch, one model of each architecture, and the activations of a batch."""

MALLOC_OPTIONS = {
    -4: 0,  # M_MMAP_MAX: no block gets its own memory map
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: free memory at the end of the heap is not returned
    -2: 2**26,  # M_TOP_PAD: the heap grows by 64 MiB
}
"""Options of `mallopt` and their values; the numbers are those of glibc's malloc.h."""


def default_workers(root: Path = CGROUP) -> int:
    """Return the number of worker processes for this machine: one per core if the memory suffices, and at least 1."""
    return max(1, min(cores(root), free_memory(root) // PER_WORKER))


def reachable(device: torch.device) -> list[torch.device]:
    """Return the devices of workers: all GPUs of this machine for ``cuda`` without an index, else `device`."""
    if device.type == "cpu" or device.index is not None:
        return [device]
    return [torch.device(device.type, number) for number in range(torch.accelerator.device_count())] or [device]


def cores(root: Path = CGROUP) -> int:
    """Return the number of cores that this process may use: those it is bound to, but at most its container's share."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(root / "cpu.max").partition(" ")
    if not quota.isdigit():  # "max", or no such file
        return bound
    return max(1, min(bound, int(quota) // int(period)))


@cache
def processor() -> str:
    """Return this processor's name, and the instruction set that torch uses on it: ``Intel Xeon (AVX512)``."""
    lines = _read(Path("/proc/cpuinfo")).splitlines()  # other systems have no such file
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def free_memory(root: Path = CGROUP) -> int:
    """Return the bytes of memory that this process can still allocate on the machine or in its container."""
    lines = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else PER_WORKER
    limit, used = _read(root / "memory.max"), _read(root / "memory.current")
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def room() -> int:
    """Return how many bytes may be read from a file: at most `MAX_BYTES` and, on Linux, half of the free memory.

    It is half because data are copied once after reading.
    """
    return min(MAX_BYTES, free_memory() // 2) if sys.platform == "linux" else MAX_BYTES


def gib(size: int) -> str:
    """Return a number of bytes as text in GiB or MiB, rounded down."""
    return f"{size // 2**30:,} GiB" if size >= 2**30 else f"{size // 2**20:,} MiB"


def check_claim(path: Path, claimed: int, fix: str, what: str = "data") -> None:
    """Check that reading a file needs at most `room` bytes, before memory is allocated; else raise InputError.

    Args:
        path: the file or folder.
        claimed: the bytes of memory that its content needs, by its headers or size.
        fix: what to do if these are too many, for the message.
        what: the name of the content in the message, such as ``"weights"``.
    """
    if claimed > (free := room()):
        half = f"half of the free memory ({gib(free)})"
        limit = f"the {gib(MAX_BYTES)} allowed" if claimed > MAX_BYTES else half
        raise InputError(f"{path} claims {gib(claimed)} of {what}, more than {limit}: {fix}.")


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


def keep_freed_memory() -> None:
    """Keep glibc from returning freed memory to the system between training steps.

    Otherwise each step would cost a page fault for every 4 kB that it allocates again. The process then keeps its peak
    memory until it ends. Results do not change. Without glibc this function does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in MALLOC_OPTIONS.items():
        mallopt(option, value)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
