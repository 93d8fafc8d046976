"""Measurements: each way to do the same work has a separate process, and the ways take turns."""

import datetime
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.machine.resources import cores, processor

Make = Callable[..., Callable[[], Any]]
"""Prepares the work and returns the function to time. It runs in the process of the way, so it must be importable."""

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RAW = Path(os.environ.get("KTPFL_REAL_DATA", ROOT / "data" / "01_raw"))
"""The folder of the npz files with real images."""
CONFIGURED: dict[str, dict[str, Any]] = {"sim_pfl": {"weights": "minmax", "temperature": 3.0}}
"""Hyperparameters that conf/base sets, by method."""


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

    def turn(self) -> float:
        """Do the work once, and return the wall time in seconds."""
        self._connection.send(True)
        return float(self._connection.recv())

    def close(self) -> None:
        self._connection.send(False)
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, make: Make, arguments: tuple[Any, ...]) -> None:
    work = make(*arguments)
    connection.send("ready")
    while connection.recv():
        connection.send(seconds_of(work))


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(ways: Mapping[str, Way], turns: int) -> dict[str, list[float]]:
    """Return the seconds of each way, and end the ways. They take turns, so other load affects all alike.

    Several turns follow one without timing; a single turn, for work that takes minutes, does not.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-(turns > 1), turns):
        for name, way in ways.items():
            seconds = way.turn()
            times[name] += [seconds] * (turn >= 0)
    for way in ways.values():
        way.close()
    return times


def hardware() -> str:
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{processor()}, {cores()} cores{gpu}, torch {torch.__version__}"


def today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def write(name: str, lines: list[str]) -> None:
    file = RESULTS / f"{today()}-{name}.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Written to {file}")
