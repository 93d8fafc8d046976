"""What this process may really use of the machine: its cores and its memory, the limits of a container included."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PER_WORKER = 1_500_000_000
"""Bytes that a worker may need: torch's own, one model of each architecture, and the activations of a batch."""


def default_workers(root: Path = CGROUP) -> int:
    """Return how many worker processes this machine carries: one a core, as far as the memory goes; at least 1."""
    return max(1, min(cores(root), free_memory(root) // PER_WORKER))


def cores(root: Path = CGROUP) -> int:
    """Return the number of cores that this process may use: those it is bound to, or a container's share of them."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(root / "cpu.max").partition(" ")
    if not quota.isdigit():  # "max", or no such file
        return bound
    return max(1, min(bound, int(quota) // int(period)))


def free_memory(root: Path = CGROUP) -> int:
    """Return the bytes that this process can still take: what the machine has, or what a container leaves."""
    lines = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else PER_WORKER
    limit, used = _read(root / "memory.max"), _read(root / "memory.current")
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
