"""Measurements: each way to do the same work has a separate process, and the ways take turns."""

import datetime
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.settings import Dtype, has_bfloat16

try:
    from ktpfl_pipeline.core.machine import resources
except ModuleNotFoundError:  # the source of an earlier commit is measured
    from ktpfl_pipeline.core import resources  # type: ignore[attr-defined, no-redef]

Make = Callable[..., Callable[[], Any]]
"""Prepares the work and returns the function to time. It runs in the process of the way, so it must be importable."""

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RAW = Path(os.environ.get("KTPFL_REAL_DATA", ROOT / "data" / "01_raw"))
"""The folder of the npz files with real images."""
CONFIGURED: dict[str, dict[str, Any]] = {"sim_pfl": {"weights": "minmax", "temperature": 3.0}}
"""Hyperparameters that conf/base sets, by method."""
CLOSELY = 0.02  # seconds
PRODUCT = 3072  # rows and columns of the matrices whose product is the ceiling
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16") if has_bfloat16("cpu") else ("float32",)
"""The precisions for which this processor has instructions."""


class Way:
    """One way to do the work, in a process with separate threads, workers and memory, which waits for its turn."""

    def __init__(self, make: Make, *arguments: Any) -> None:
        """Start the process and let it prepare the work."""
        context = get_context("spawn")
        self._connection, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(far, make, arguments))
        self._process.start()
        far.close()
        self._connection.recv()

    def turn(self, sampled_every: float | None = None) -> tuple[float, float]:
        """Do the work once; return the wall time, and the peak memory of the process and its children in GB.

        Args:
            sampled_every: the seconds between two measurements of memory, which take several milliseconds each. With
                None memory is not measured, and 0 GB are returned.
        """
        self._connection.send(sampled_every)
        seconds, peak = self._connection.recv()
        return float(seconds), float(peak)

    def page_faults(self) -> int:
        """Return the number of minor page faults of the process since its start."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[7])  # minflt of proc(5)

    def close(self) -> None:
        """End the process and its children."""
        self._connection.send("end")
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, make: Make, arguments: tuple[Any, ...]) -> None:
    work = make(*arguments)
    connection.send("ready")
    while (wish := connection.recv()) != "end":
        with memory_watched(wish) as seen:
            seconds = seconds_of(work)
        connection.send((seconds, max(seen, default=0) / 1e9))


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(
    ways: Mapping[str, Way], turns: int, sampled_every: float | None = None
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the seconds and the peak memory in GB of each way. The ways take turns, so other load affects all alike.

    Args:
        ways: the ways to compare, by name.
        turns: the number of turns of each way.
        sampled_every: the seconds between measurements of memory, for work that takes minutes. With None, each way
            first has one more turn without timing, which serves as a warm-up and measures memory at short intervals.
    """
    peaks = {name: 0.0 if sampled_every else way.turn(CLOSELY)[1] for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            seconds, peak = way.turn(sampled_every)
            times[name].append(seconds)
            peaks[name] = max(peaks[name], peak)
    return times, peaks


def ratio(reference: list[float], taken: list[float]) -> float:
    """Return the speedup over the reference: the median of the ratios of neighboring runs."""
    return statistics.median(a / b for a, b in zip(reference, taken, strict=True))


def product(dtype: str, threads: int) -> Callable[[], Any]:
    """Prepare a large matrix product of 2·n³ operations, which is the ceiling."""
    torch.set_num_threads(threads)
    matrix = torch.randn(PRODUCT, PRODUCT).to(getattr(torch, dtype))
    return lambda: matrix @ matrix


def ceiling(dtype: str, threads: int, repetitions: int = 7) -> float:
    """Return the GFLOP/s of a large matrix product, the best of several repetitions."""
    way = Way(product, dtype, threads)
    best = min(in_turn({dtype: way}, repetitions)[0][dtype])
    way.close()
    return 2 * PRODUCT**3 / best / 1e9


@contextmanager
def memory_watched(every: float | None) -> Iterator[list[int]]:
    """Collect the memory of this process and its children in bytes, every `every` seconds, inside the block."""
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every):
            seen.append(sum(_proportional(process) for process in _family(os.getpid())))

    watcher = threading.Thread(target=watch)
    if every is not None:
        watcher.start()
    try:
        yield seen
    finally:
        done.set()
        if every is not None:
            watcher.join()


def _proportional(process: int) -> int:
    """Return the memory of a process in bytes, including its share of shared memory."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _family(process: int) -> Iterator[int]:
    """Yield a process and all of its descendants."""
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def hardware() -> str:
    """Return the hardware of the measurements, in a few words."""
    from ktpfl_pipeline.core.machine.resources import processor  # here: the source of an earlier commit may lack it

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{processor()}, {resources.cores()} cores{gpu}, torch {torch.__version__}"


def today() -> str:
    """Return the date of a result file."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def write(name: str, lines: list[str]) -> None:
    """Write a dated result, and print its path."""
    file = RESULTS / f"{today()}-{name}.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Written to {file}")
