"""What both ends of a real federation must have alike, or they would round differently."""

import platform
from importlib.metadata import version
from typing import Literal

import torch

from ktpfl_pipeline import __version__
from ktpfl_pipeline.config.values import Count, Settings

PROCESSORS = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
"""What systems call the same kind of processor."""


class Arithmetic(Settings):
    """How both ends compute; where is each one's own affair."""

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
