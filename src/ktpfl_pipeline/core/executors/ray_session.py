"""This process's connection to a Ray cluster: starting or joining it, and comparing its machines."""

import hashlib
import logging
import os
import platform
import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, check_installed
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.machine.files import HOST, PACKAGE, runs
from ktpfl_pipeline.core.machine.stopping import heeding
from ktpfl_pipeline.core.settings import Ray, Workers

logger = logging.getLogger(__name__)
LOCAL = "local"
"""The address of a cluster of only this machine, which starts and ends with the run."""
FOLDER = f"ktpfl-{HOST}-"
"""The prefix of the folder of a local cluster; the id of the run's process follows. Containers may share the place."""
REACH = 3
"""Seconds within which the head of a cluster must answer."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # sends no usage statistics
    "RAY_ENABLE_AUTO_CONNECT": "0",  # opening a handle after the session must not start another Ray
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future default, which avoids a warning
}


def check(settings: Ray, threads: int, device: torch.device) -> None:
    """Check that workers of a cluster are possible; InputError names the setting and what it must be."""
    check_installed("compute.executor.ray", "ray", otherwise="choose processes")
    address, share = settings.address, settings.gpus_per_worker
    if threads != 1:
        reason = f" and compute.threads is {threads}; each worker has one: set compute.threads to 1."
    elif device.type == "cpu" and share is not None:
        reason = f" with gpus_per_worker {share}, and compute.device means a CPU: set compute.device to cuda, or leave "
        reason += "gpus_per_worker out."
    elif device.index is not None:
        reason = f" and compute.device is {device}; Ray assigns GPUs to workers: set compute.device to cuda."
    elif address.startswith("ray://"):
        reason = ", an address from outside; start the run on one of its machines, with auto."
    elif address not in (LOCAL, "auto") and not re.fullmatch(r"[^\s:/]+:\d+", address):
        reason = "; choose local, auto, or the head's host:port."
    else:
        return
    raise InputError(f"compute.executor has ray at {address!r}{reason}")


class Session:
    """This process's connection to a cluster."""

    def __init__(self, settings: Ray, gpus: float = 0) -> None:
        """Start or join a cluster; if this process is connected to one already, use that.

        Each worker needs `gpus` GPUs. Raises InputError if the cluster cannot be joined or has too few CPUs or GPUs.
        """
        workers = settings.workers
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
        if settings.address == LOCAL:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # listen on the loopback address alone
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 makes workers wait for all other processes
        import ray

        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._joined = not ray.is_initialized()
        if self._joined:
            with heeding():  # Ray's own handler of SIGTERM ends the process at once
                self._start_or_join(settings.address, workers)
        carry_tensors()
        self.alive = True  # whether references to objects of the cluster are still valid
        there = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cpus, own_gpus = int(there.get("CPU", 0)), there.get("GPU", 0.0)
        most = min(max(1, cpus), per_gpu(gpus, own_gpus)) if gpus else max(1, cpus)
        # the largest number that fits, or the configured number
        self.workers = most if workers == "auto" else workers
        if not 0 < self.workers <= most:
            self.end()
            if not most:
                raise InputError(
                    f"compute.executor has Ray workers with {gpus:g} GPUs each, and the cluster has {own_gpus:g} GPUs; "
                    "set compute.device to cpu, or gpus_per_worker lower."
                )
            has = f"{cpus} CPUs" + (f" and {own_gpus:g} GPUs, of which each worker needs {gpus:g}" if gpus else "")
            raise InputError(
                f"compute.executor has {workers} Ray workers, and the cluster has {has}; take auto, or at most {most}."
            )

    def _start_or_join(self, address: str, workers: Workers) -> None:
        import ray

        if address == LOCAL:
            clear_dead()
            prefix = f"{FOLDER}{os.getpid()}-"
            self._folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            ray.init(
                address=LOCAL,
                num_cpus=resources.default_workers() if workers == "auto" else workers,
                num_gpus=torch.cuda.device_count(),
                include_dashboard=False,
                object_store_memory=object_store(),
                _temp_dir=self._folder.name,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
            return
        host, _, port = address.rpartition(":")
        try:
            if host:
                socket.create_connection((host, int(port)), timeout=REACH).close()  # Ray itself would try for a minute
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except Exception as error:  # of many kinds: no such cluster, another version of Ray, not one of its hosts
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"compute.executor has ray at {address!r}, and that cluster cannot be joined from here ({reason}); "
                "start one with ray start --head, or choose processes."
            ) from error

    def end(self) -> None:
        """Leave the cluster, and end it if this process started it."""
        import ray

        self.alive = False
        if self._joined:
            ray.shutdown()
        if self._folder is not None:
            self._folder.cleanup()


def per_gpu(gpus: float, there: float) -> int:
    """Return how many workers with `gpus` GPUs each fit on the `there` GPUs; several may share one GPU."""
    return int(there) * int(1 / gpus + 1e-9) if gpus <= 1 else int(there // gpus)


def about() -> dict[str, str]:
    """Return this machine's versions of torch and of this package's source, its instructions and GPUs, and its name."""
    digest = hashlib.sha256()
    for part in ("core", "methods", "models"):
        for file in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(file.read_bytes())
    gpus = {torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())}
    return {
        "torch": torch.__version__,
        "ktpfl_pipeline": f"source {digest.hexdigest()[:8]}",
        "instructions": " and ".join([resources.processor(), *sorted(gpus)]),
        "machine": platform.node(),
    }


def check_versions(found: list[dict[str, str]]) -> None:
    """Check that all machines have this machine's versions; InputError names the machine and what differs.

    Other processors or GPUs give only a warning, because with them only the last digits of results may differ.
    """
    here = about()
    for there in found:
        for name in ("torch", "ktpfl_pipeline"):
            if there[name] != here[name]:
                raise InputError(
                    f"The cluster's machine {there['machine']} has {name} {there[name]}, and {here['machine']}, where "
                    f"the run was started, {here[name]}; install the same on all of them."
                )
        if there["instructions"] != here["instructions"]:
            logger.warning(
                "%s computes with %s and %s with %s: the last digits of results depend on the machine of each client.",
                *(there["machine"], there["instructions"], here["machine"], here["instructions"]),
            )


def clear_dead() -> None:
    """Delete the folders of killed clusters in the system's folder for temporary files."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdigit() and not runs(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def object_store() -> int:
    """Return the bytes of memory in which a local cluster keeps models; models that do not fit go to the disk."""
    free, shared = resources.free_memory() // 3, Path("/dev/shm")
    if shared.exists():
        room = os.statvfs(shared)
        free = min(free, room.f_bavail * room.f_frsize * 9 // 10)
    return max(100 * 2**20, free)


def carry_tensors() -> None:
    """Make Ray send tensors of this process as plain memory, because pickling would copy them several times."""
    from ray.util import register_serializer

    register_serializer(Tensor, serializer=_packed, deserializer=_unpacked)


RECEIVING = [torch.device("cpu")]
"""The device on which this process puts tensors that were on another process's GPU."""


def receive_on(device: torch.device) -> None:
    """Set the device on which this process puts tensors that were on another process's GPU."""
    RECEIVING[:] = [device]


def _packed(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], Any, bool]:
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return tensor.dtype, tuple(tensor.shape), numbers, tensor.device.type != "cpu"


def _unpacked(packed: tuple[torch.dtype, tuple[int, ...], Any, bool]) -> Tensor:
    """Return a copy of a tensor, aligned as torch aligns memory, so that the same kernels run."""
    dtype, shape, numbers, away = packed
    tensor = torch.tensor(numbers).view(dtype).view(shape)
    return tensor.to(RECEIVING[0]) if away else tensor
