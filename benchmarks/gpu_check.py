"""Checks this project on a GPU in ten minutes, and writes a report to send back: `make gpu-check`.

    python benchmarks/gpu_check.py                       on a GPU; ends with exit code 2 if there is none
    python benchmarks/gpu_check.py --device cpu --quick  the same measurements in small on a CPU, to test the check

The check runs the tests of `tests/devices`, which compare the GPU's results with the CPU's, and local training of five
clients by architecture, precision and memory format. It writes gpu_report.md, which names the machine, torch and the
driver, but no hosts, users or folders.
"""

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import measure
import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining

NO_GPU = (
    "torch {torch} finds no GPU on this machine, so nothing was checked: run make gpu-check where nvidia-smi lists one "
    "and torch is a build for CUDA (docs/how_to/speed.md)."
)
ARCHITECTURES = ("lenet", "alexnet", "resnet18", "shufflenet_v2", "mcmahan_cnn")
BUDGET = 540.0
"""The seconds after which no further measurement starts."""
LIMIT = 300.0
"""The most seconds for the tests."""
LAST = {"memory_format": "channels_last"}
WAYS: dict[str, dict[str, Any]] = {
    **{"float32": {}, "float32, channels last": LAST},
    **{"tf32": {"dtype": "tf32"}, "tf32, channels last": {"dtype": "tf32", **LAST}},
    **{"bfloat16": {"dtype": "bfloat16"}, "bfloat16, channels last": {"dtype": "bfloat16", **LAST}},
}
"""The ways to compute: settings that differ from float32, contiguous."""


def machine(device: str) -> list[str]:
    lines = [f"- {measure.hardware()}, Python {platform.python_version()}"]
    if device == "cuda":
        driver = "unknown"
        if shutil.which("nvidia-smi"):
            asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0] or driver
        lines.append(f"- CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, driver {driver}")  # type: ignore[no-untyped-call]
        for number in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(number)
            size, power = found.total_memory / 2**30, f"{found.major}.{found.minor}"
            lines.append(f"- GPU {number}: {found.name}, {size:.0f} GiB, compute capability {power}")
    return lines


def suite() -> list[str]:
    """Return the outcome of the tests of `tests/devices` on the GPU."""
    command = [sys.executable, "-m", "pytest", "tests/devices", "--device=cuda", "-q", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(command, cwd=measure.ROOT, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return [f"Not done after {LIMIT:.0f} s."]
    said = ended.stdout.strip().splitlines() or ["pytest said nothing"]
    failed = [f"- `{line}`" for line in said if line.startswith(("FAILED", "ERROR"))]
    return [f"`pytest tests/devices --device=cuda`: {said[-1].strip('= ')}", "", *failed]


def ways(device: str) -> dict[str, dict[str, Any]]:
    """Return the ways to compute on `device`. Only a GPU has TF32."""
    return {name: own for name, own in WAYS.items() if device == "cuda" or "tf32" not in own.values()}


def samples(number: int, channels: int) -> LabeledDataset:
    images = torch.randint(0, 256, (number, channels, 28, 28), dtype=torch.uint8)
    return LabeledDataset(images, torch.randint(0, 10, (number,)))


def federation(architecture: str, images: int, compute: Compute) -> Federation:
    """Return five clients of one architecture with random images, because only time is measured."""
    channels = 1 if architecture == "mcmahan_cnn" else 3
    nothing = samples(0, channels)
    clients = tuple(Client(n, architecture, samples(images, channels), nothing, nothing) for n in range(5))
    build = partial(models.build, shape=(channels, 28, 28), classes=10)
    training = LocalTraining(epochs=1, batch_size=128)
    return Federation(clients, samples(1, channels).inputs, 1, 10, build, training=training, compute=compute)


def rate(architecture: str, way: dict[str, Any], device: str, images: int, repetitions: int) -> list[str]:
    """Return the report's entries for rounds per second and memory."""
    fed = federation(architecture, images, Compute(device, **way))
    initial, cuda = fed.initial_models(), fed.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times = [measure.seconds_of(lambda: fed.train(initial, 1)) for _ in range(repetitions + 2)]  # two to warm up
    memory = f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB" if cuda else "—"
    return [f"{1 / statistics.median(times[2:]):.3g}", memory]


def speeds(device: str, quick: bool, end: float) -> Iterator[str]:
    """Yield a row for each architecture and way, until the time `end`; of a failure the first line, without folders."""
    size = (16, 1) if quick else (500, 5)  # images per client, repetitions
    for architecture in ARCHITECTURES[:1] if quick else ARCHITECTURES:
        for name, way in ways(device).items():
            found = ["not begun within the time", ""]
            if time.monotonic() < end:
                try:
                    found = rate(architecture, way, device, *size)
                except (RuntimeError, InputError) as error:
                    said = (str(error).splitlines() or ["failed"])[0][:120].replace("|", "/")
                    found = [f"{type(error).__name__}: {said}", ""]
            yield f"| {architecture} | {name} | {' | '.join(found)} |"


def report(device: str, quick: bool, begun: float) -> Iterator[str]:
    """Yield the lines of the report as soon as they are known."""
    yield from [f"# This project on {'a GPU' if device == 'cuda' else 'a CPU'}, {measure.today()}", ""]
    yield from machine(device)
    if device == "cuda":
        yield from ["", "## The tests of the device", "", *suite()]
    yield from ["", "## Speed", "", "Five clients of one architecture, an epoch in batches of 128."]
    yield from ["", "| architecture | way | rounds/s | memory, peak |", "| --- | --- | --- | --- |"]
    yield from speeds(device, quick, begun + BUDGET)
    yield from ["", f"Taken in {time.monotonic() - begun:.0f} s."]


def main(arguments: list[str] | None = None) -> int:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description="Check this project on a GPU, and write a report to send back.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny: whether the check itself works")
    parser.add_argument("--output", type=Path, default=Path("gpu_report.md"))
    asked = parser.parse_args(arguments)
    if asked.device == "cuda" and not torch.cuda.is_available():
        print(NO_GPU.format(torch=torch.__version__))
        return 2
    torch.set_num_threads(1)
    with asked.output.open("w", encoding="utf-8") as file:
        for line in report(asked.device, asked.quick, begun):
            print(line, flush=True)
            file.write(line + "\n")
    print(f"Written to {asked.output}: send it back.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
