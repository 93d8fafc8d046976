"""One file per executor, and `create`, which makes the one that ``compute.executor`` names."""

import torch

from ktpfl_pipeline.core.executors import processes, ray_session
from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.settings import ExecutorSettings


def create(settings: ExecutorSettings, threads: int, device: str | torch.device) -> Executor:
    """Return an executor, whose `device` is that of `Compute`; all executors return the same bits.

    Raises InputError if the executor is impossible with these torch threads, on this device, or on this machine.
    """
    device = torch.device(device)
    number = parallel(settings, threads, device)
    if (ray := settings.ray) is not None:
        gpus = 0 if device.type == "cpu" else 1 if ray.gpus_per_worker is None else ray.gpus_per_worker
        return ClusterExecutor(ray.address, ray.workers, gpus)
    return processes.ProcessesExecutor(number) if number > 1 else SerialExecutor()


def parallel(settings: ExecutorSettings, threads: int, device: str | torch.device) -> int:
    """Return how many clients are computed at the same time; errors as of `create`.

    ``auto`` processes are one if several are impossible: with several threads, or if processes cannot be forked. Of a
    cluster, which is not asked, ``auto`` workers are as many as this machine would have processes.
    """
    device = torch.device(device)
    if (ray := settings.ray) is not None:
        ray_session.check(ray.address, threads, device, ray.gpus_per_worker)
        return resources.default_workers() if ray.workers == "auto" else ray.workers
    if settings.processes in (None, 1):
        return 1
    if settings.processes == "auto":
        most = resources.default_workers() if device.type == "cpu" else len(resources.reachable(device))
        return 1 if processes.obstacle(threads) else most
    processes.check(settings.processes, threads)
    return settings.processes
