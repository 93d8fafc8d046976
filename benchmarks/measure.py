"""What measurements share: folders, the machine, and dated files."""

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.machine.resources import cores, processor

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RAW = Path(os.environ.get("KTPFL_REAL_DATA", ROOT / "data" / "01_raw"))
"""The folder of the npz files with real images."""
CONFIGURED: dict[str, dict[str, Any]] = {"sim_pfl": {"weights": "minmax", "temperature": 3.0}}
"""Hyperparameters that conf/base sets, by method."""


def seconds_of(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def hardware() -> str:
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    return f"{processor()}, {cores()} cores{gpu}, torch {torch.__version__}"


def today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def write(name: str, lines: list[str]) -> None:
    file = RESULTS / f"{today()}-{name}.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"Written to {file}")
