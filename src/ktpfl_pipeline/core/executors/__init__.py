"""The executors, one per file, and `create`, which makes the executor that ``compute.executor`` names."""

from ktpfl_pipeline.core.executors import processes, ray_session
from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.settings import Compute


def create(compute: Compute) -> Executor:
    """Return the executor that ``compute.executor`` names; all executors return the same bits.

    Raises InputError if the executor is impossible with these torch threads, on this device, or on this machine.
    """
    number = parallel(compute)
    if (ray := compute.executor.ray) is not None:
        return ClusterExecutor(ray, compute.place())
    return processes.ProcessesExecutor(number) if number > 1 else SerialExecutor()


def parallel(compute: Compute) -> int:
    """Return how many clients are computed at the same time. Raises the errors of `create`.

    ``auto`` means one process if several are impossible: with several threads, or if the system cannot fork. For a
    cluster, ``auto`` workers are counted as the processes of this machine, because the cluster is not asked.
    """
    settings, device = compute.executor, compute.place()
    if (ray := settings.ray) is not None:
        ray_session.check(ray, compute.threads, device)
        return resources.default_workers() if ray.workers == "auto" else ray.workers
    if settings.processes in (None, 1):
        return 1
    if settings.processes == "auto":
        most = resources.default_workers() if device.type == "cpu" else len(resources.reachable(device))
        return 1 if processes.obstacle(compute.threads) else most
    processes.check(settings.processes, compute.threads)
    return settings.processes
