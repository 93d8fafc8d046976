"""What both ends of a real federation must have alike, or they would round differently."""

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import torch

from ktpfl_pipeline import __version__
from ktpfl_pipeline.core.validation import Count

PROCESSORS = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""What systems call the same kind of processor."""


@dataclass(frozen=True)
class Arithmetic:
    """How the server and the clients compute; each chooses its own device."""

    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    threads: Count = 1
    prediction_batch: Count = 1000


def versions() -> dict[str, str]:
    """Return the versions that both ends must have alike, or they would round differently."""
    processor = platform.machine().lower()
    return {
        "ktpfl_pipeline": __version__,
        "torch": torch.__version__.partition("+")[0],
        "torchvision": version("torchvision").partition("+")[0],
        "processor": PROCESSORS.get(processor, processor),
    }
