"""One file per way to run an operation for many clients, and the choice among them."""

import multiprocessing
from typing import Literal

import torch

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors import ray_session
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.workers import WorkersExecutor
from ktpfl_pipeline.core.machine import resources


def create(
    workers: int | Literal["auto"],
    threads: int,
    device: str | torch.device,
    cluster: str | None = None,
) -> SerialExecutor:
    """Return an executor with `workers` processes; 1 is the serial one, with the same bits.

    Args:
        workers: how many; ``"auto"`` is one for each core that may be used, as far as memory goes, or on GPUs one for
            each of them; and 1 where several are impossible: with several threads, or where processes cannot be forked.
        threads: torch threads.
        device: what the arithmetic runs on: ``"cpu"``, one GPU such as ``"cuda:1"``, or ``"cuda"``, which is all of
            them where there are several workers.
        cluster: None for processes of this machine; else the address of a Ray cluster that has the workers, ``"local"``
            for one of this machine: ``"auto"`` workers are then one for each of its CPUs.

    Raises:
        InputError: if several workers are asked for and impossible.
    """
    device = torch.device(device)
    if cluster is not None:
        ray_session.check(cluster, threads, device.type)
        return ClusterExecutor(cluster, workers)
    number = side_by_side(workers, threads, device)
    return WorkersExecutor(number) if number > 1 else SerialExecutor()


def side_by_side(workers: int | Literal["auto"], threads: int, device: torch.device) -> int:
    """Return how many processes of this machine compute clients side by side; arguments and errors as of `create`."""
    why = {
        f"compute.threads is {threads}, and several threads in each of several workers would fight for the same "
        "cores (set it to 1)": threads != 1,
        "this system cannot fork processes": "fork" not in multiprocessing.get_all_start_methods(),
    }
    impossible = [reason for reason, holds in why.items() if holds]
    if workers == "auto":
        most = resources.default_workers() if device.type == "cpu" else len(resources.reachable(device))
        return 1 if impossible else most
    if workers > 1 and impossible:
        raise InputError(f"compute.workers is {workers}, but {impossible[0]}; take auto or 1.")
    return workers
