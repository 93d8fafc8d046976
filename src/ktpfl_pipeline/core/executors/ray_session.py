"""This process's part in a Ray cluster: starting or joining one, and what must be alike on its machines."""

import hashlib
import logging
import os
import platform
import re
import shutil
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.machine.stopping import heeding

logger = logging.getLogger(__name__)
PACKAGE = Path(__file__).parents[2]
LOCAL = "local"
"""The cluster of this machine alone, which starts with the run and ends with it."""
FOLDER = "ktpfl-ray-"
"""What the folder of such a cluster begins with; the id of the run's process follows."""
REACH = 3
"""Seconds in which the head of a cluster must answer."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is told to anybody
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a handle that is opened too late must not start another Ray
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what will be the default, and is warned of until then
}


def check(address: str, threads: int, device: str) -> None:
    """Check that the cluster at `address` is possible with these settings, those of `executors.create`.

    Raises:
        InputError: naming the setting and what it must be.
    """
    why = {
        f" and compute.threads is {threads}; each worker has one: set compute.threads to 1.": threads != 1,
        ", whose workers have CPUs, and compute.device means a GPU; set it to cpu, or leave the cluster out.": (
            device != "cpu"
        ),
        ", an address from outside; start the run on one of its machines, with auto.": address.startswith("ray://"),
        "; choose local, auto, or the head's host:port.": (
            address not in (LOCAL, "auto") and not re.fullmatch(r"[^\s:/]+:\d+", address)
        ),
        ", which needs Ray: pip install '.[ray]' in the project's folder; or leave it out.": find_spec("ray") is None,
    }
    for reason, holds in why.items():
        if holds:
            raise InputError(f"compute.cluster is {address!r}{reason}")


class Session:
    """This process's part in a cluster.

    Attributes:
        workers: how many the cluster carries, or as many as were asked for.
        alive: whether references to objects of the cluster are good still.
    """

    def __init__(self, address: str, workers: int | Literal["auto"]) -> None:
        """Start a cluster or join one; where this process is part of one already, stay in that."""
        os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
        if address == LOCAL:
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # listen on the loopback address alone
        import ray

        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._joined = not ray.is_initialized()
        if self._joined:
            with heeding():  # Ray's own handler of SIGTERM ends the process where it stands
                self._start_or_join(address, workers)
        carry_tensors()
        self.alive = True
        cpus = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        self.workers = max(1, cpus) if workers == "auto" else workers
        if self.workers > max(1, cpus):
            self.end()
            raise InputError(
                f"compute.workers is {workers}, and the cluster has {cpus} CPUs; take auto, or at most {cpus}."
            )

    def _start_or_join(self, address: str, workers: int | Literal["auto"]) -> None:
        import ray

        if address == LOCAL:
            clear_dead()
            prefix = f"{FOLDER}{os.getpid()}-"
            self._folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
            ray.init(
                address=LOCAL,
                num_cpus=resources.default_workers() if workers == "auto" else workers,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=object_store(),
                _temp_dir=self._folder.name,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        else:
            _join_ray(address)

    def end(self) -> None:
        """Leave the cluster, and end it where it was started here."""
        import ray

        self.alive = False
        if self._joined:
            ray.shutdown()
        if self._folder is not None:
            self._folder.cleanup()


def about() -> dict[str, str]:
    """Return the versions of torch and of this package's source, and the processor's instructions, of this machine."""
    digest = hashlib.sha256()
    for part in ("core", "methods", "models"):
        for file in sorted((PACKAGE / part).rglob("*.py")):
            digest.update(file.read_bytes())
    return {
        "torch": torch.__version__,
        "ktpfl_pipeline": f"source {digest.hexdigest()[:8]}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.node(),
    }


def check_versions(found: list[dict[str, str]]) -> None:
    """Check that all machines have this one's versions, and warn of other processors: the last digits may differ there.

    Raises:
        InputError: naming the machine and what differs.
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
                "%s computes with %s and %s with %s: the last digits of results depend on who works for whom.",
                *(there["machine"], there["instructions"], here["machine"], here["instructions"]),
            )


def clear_dead(place: Path | None = None) -> None:
    """Delete the folders of clusters whose process is no more: it was killed.

    Args:
        place: where they are; None takes the system's folder for temporary files.
    """
    for folder in (place or Path(tempfile.gettempdir())).glob(f"{FOLDER}*"):
        pid = folder.name.removeprefix(FOLDER).partition("-")[0]
        if pid.isdigit():
            try:
                os.kill(int(pid), 0)  # asks whether it is there
            except ProcessLookupError:
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:  # somebody else's
                continue


def object_store(shared: Path = Path("/dev/shm")) -> int:
    """Return the bytes that a cluster of this machine keeps models in: what does not fit goes to the disk."""
    free = resources.free_memory() // 3
    if shared.exists():
        room = os.statvfs(shared)
        free = min(free, room.f_bavail * room.f_frsize * 9 // 10)
    return max(100 * 2**20, free)


def _join_ray(address: str) -> None:
    import ray

    host, _, port = address.rpartition(":")
    try:
        if host:
            socket.create_connection((host, int(port)), timeout=REACH).close()  # Ray itself would try for a minute
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # of many kinds: no such cluster, another version of Ray or Python, not one of its hosts
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"compute.cluster is {address!r}, and that cluster cannot be joined from here ({reason}); start one with "
            "ray start --head, or leave compute.cluster out."
        ) from error


def carry_tensors() -> None:
    """Let Ray move tensors as plain memory, in this process; pickled they are copied several times."""
    from ray.util import register_serializer

    register_serializer(Tensor, serializer=_packed, deserializer=_unpacked)


def _packed(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], Any]:
    numbers = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return tensor.dtype, tuple(tensor.shape), numbers


def _unpacked(packed: tuple[torch.dtype, tuple[int, ...], Any]) -> Tensor:
    """Return a tensor in memory of its own, aligned as torch aligns, so that the same kernels run."""
    dtype, shape, numbers = packed
    return torch.tensor(numbers).view(dtype).view(shape)
