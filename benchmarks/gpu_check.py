"""Checks this project on a GPU in ten minutes, and writes a report to send back: `make gpu-check`.

    python benchmarks/gpu_check.py                       on a GPU; ends with exit code 2 if there is none
    python benchmarks/gpu_check.py --device cpu --quick  the same measurements in small on a CPU, to test the check

The check runs the tests of `tests/devices` on the GPU, KT-pFL on the GPU and on the CPU, and local training of five
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import measure
import torch
from sklearn.datasets import load_digits
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from ktpfl_pipeline import models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, LocalTraining
from ktpfl_pipeline.methods.kt_pfl import KTpFL

NO_GPU = (
    "torch {torch} finds no GPU on this machine, so nothing was checked: run make gpu-check where nvidia-smi lists one "
    "and torch is a build for CUDA (docs/how_to/speed.md)."
)
ARCHITECTURES = ("lenet", "alexnet", "resnet18", "shufflenet_v2", "mcmahan_cnn")
CLIENTS, BATCH, CLASSES = 5, 128, 10
BUDGET = 540.0
"""The seconds after which no further measurement starts."""
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
LIMIT = 300.0
"""The most seconds for the tests."""


@dataclass(frozen=True)
class Way:
    """One way to compute: the settings that differ from float32, contiguous, and one client after another."""

    name: str
    settings: dict[str, Any]
    executor: Callable[[], Executor] = SerialExecutor


BFLOAT16 = {"dtype": "bfloat16", "memory_format": "channels_last"}
WAYS = (
    Way("float32", {}),
    Way("float32, channels last", {"memory_format": "channels_last"}),
    Way("tf32", {"dtype": "tf32"}),
    Way("tf32, channels last", {"dtype": "tf32", "memory_format": "channels_last"}),
    Way("bfloat16", {"dtype": "bfloat16"}),
    Way("bfloat16, channels last", BFLOAT16),
)
TOGETHER = Way("float32, two workers or one for each GPU", {}, lambda: ProcessesExecutor(max(2, gpus())))


def samples(number: int, channels: int, seed: int) -> LabeledDataset:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, channels, 28, 28), dtype=torch.uint8, generator=generator)
    return LabeledDataset(images, torch.randint(0, CLASSES, (number,), generator=generator))


def federation(architecture: str, images: int, compute: Compute, executor: Executor) -> Federation:
    """Return the workload: clients of one architecture with random images."""
    channels = 1 if architecture == "mcmahan_cnn" else 3
    nothing = samples(0, channels, 0)
    return Federation(
        tuple(Client(n, architecture, samples(images, channels, n), nothing, nothing) for n in range(CLIENTS)),
        samples(1, channels, 0).inputs,
        public_batch_size=1,
        classes=CLASSES,
        build=partial(models.build, shape=(channels, 28, 28), classes=CLASSES),
        training=LocalTraining(epochs=1, batch_size=BATCH, learning_rate=0.01),
        compute=compute,
        executor=executor,
    )


def seconds(fed: Federation) -> float:
    """Return the seconds of a round of local training, until its losses are on the host and the device has finished."""
    models = fed.initial_models()
    return measure.seconds_of(lambda: fed.train(models, 1))


def gpus() -> int:
    """Return the number of GPUs that torch finds."""
    return torch.cuda.device_count()


def machine(device: str) -> list[str]:
    """Return the report's lines on machine, driver and libraries."""
    lines = [f"- {measure.hardware()}, Python {platform.python_version()}"]
    if device == "cuda":
        driver = "unknown"
        if shutil.which("nvidia-smi"):
            asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0] or driver
        lines.append(f"- CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, driver {driver}")  # type: ignore[no-untyped-call]
        for number in range(gpus()):
            found = torch.cuda.get_device_properties(number)
            size, power = found.total_memory / 2**30, f"{found.major}.{found.minor}"
            lines.append(f"- GPU {number}: {found.name}, {size:.0f} GiB, compute capability {power}")
    return lines


def suite() -> list[str]:
    """Return the outcome of the tests of `tests/devices` on the GPU."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "tests/devices", "--device=cuda", "-q", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return [f"Not done after {LIMIT:.0f} s."]
    said = ended.stdout.strip().splitlines() or ["pytest said nothing"]
    failed = [f"- `{line}`" for line in said if line.startswith(("FAILED", "ERROR"))]
    return [f"`pytest tests/devices --device=cuda`: {said[-1].strip('= ')}", "", *failed]


def ways(device: str) -> list[Way]:
    """Return the ways to compute on `device`. Only a GPU has TF32."""
    return [way for way in WAYS if device == "cuda" or "tf32" not in way.settings.values()]


def digits(compute: Compute, executor: Executor) -> Federation:
    """Return five clients with real digits, 8x8, and two architectures."""
    found = load_digits()
    images = torch.as_tensor(found.images * 15.9).to(torch.uint8).unsqueeze(1)
    labels = torch.as_tensor(found.target)

    def part(start: int, end: int) -> LabeledDataset:
        return LabeledDataset(images[start:end], labels[start:end])

    starts = [(n, 300 * n) for n in range(5)]
    clients = tuple(
        Client(n, ("mlp", "cnn_bn")[n % 2], part(s, s + 150), part(s + 150, s + 200), part(s + 200, s + 300))
        for n, s in starts
    )
    return Federation(
        clients,
        images[1500:],
        public_batch_size=200,
        classes=10,
        build=partial(models.build, shape=(1, 8, 8), classes=10),
        training=LocalTraining(epochs=2, batch_size=32, learning_rate=0.05),
        distillation=Distillation(epochs=1, batch_size=64, learning_rate=0.05),
        compute=compute,
        executor=executor,
    )


def trained(compute: Compute, executor: Executor, rounds: int) -> Run:
    """Return a run of KT-pFL."""
    try:
        return engine.run(KTpFL(), digits(compute, executor), Schedule(rounds=rounds))
    finally:
        executor.close()


def beside_the_cpu(device: str, rounds: int) -> Iterator[str]:
    """Yield a row for each way: the differences of accuracies and coefficients to float32 on the CPU."""
    expected = trained(Compute("cpu"), SerialExecutor(), rounds)
    for way in [*ways(device), TOGETHER]:
        try:
            found = trained(Compute(device, **way.settings), way.executor(), rounds)
        except (RuntimeError, InputError) as error:
            yield f"| {way.name} | {_failure(error)} | | |"
            continue
        assert found.coefficients is not None
        assert expected.coefficients is not None
        pairs = [
            (here, there)
            for record, other in zip(found.history, expected.history, strict=True)
            for here, there in zip(record.accuracy["after_transfer"], other.accuracy["after_transfer"], strict=True)
        ]
        farthest = max(abs(here - there) for here, there in pairs)
        mean = statistics.fmean(found.history[-1].accuracy["after_transfer"])
        apart = float((found.coefficients - expected.coefficients).abs().max())
        yield f"| {way.name} | {100 * mean:.1f} % | {100 * farthest:.1f} points | {apart:.1e} |"


def rate(architecture: str, way: Way, device: str, images: int, repetitions: int) -> tuple[float, str, str, str]:
    """Return rounds per second, and the report's entries for memory, launches and the device's working time."""
    compute = Compute(device, **way.settings)
    fed = federation(architecture, images, compute, way.executor())
    cuda = fed.device.type == "cuda"
    for _ in range(2 if cuda else 1):
        seconds(fed)  # images on the device, kernels loaded for these sizes
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    taken = statistics.median(seconds(fed) for _ in range(repetitions))
    if not cuda:
        return 1 / taken, "—", "—", "—"
    memory = f"{torch.cuda.max_memory_allocated() / 1e9:.2f} GB"
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
        watched = seconds(fed)  # slower, mostly on the host
    events = seen.key_averages()
    launched = sum(event.self_cpu_time_total for event in events if event.key in LAUNCHES) / 1e6
    worked = sum(event.self_device_time_total for event in events if event.device_type == DeviceType.CUDA) / 1e6
    return 1 / taken, memory, f"{100 * launched / watched:.0f} %", f"{100 * worked / taken:.0f} %"


def size(quick: bool) -> tuple[int, int]:
    """Return the number of images per client, and the number of repetitions."""
    return (16, 1) if quick else (500, 5)


def speeds(device: str, quick: bool, end: float) -> Iterator[str]:
    """Yield a row for each architecture and way, until the time `end`."""
    images, repetitions = size(quick)
    for architecture in ARCHITECTURES[:1] if quick else ARCHITECTURES:
        first = None
        for way in ways(device):
            if time.monotonic() > end:
                yield f"| {architecture} | {way.name} | not begun within the time | | | | |"
                continue
            try:
                found, *others = rate(architecture, way, device, images, repetitions)
            except (RuntimeError, InputError) as error:
                yield f"| {architecture} | {way.name} | {_failure(error)} | | | | |"
                continue
            first = first or found
            yield f"| {architecture} | {way.name} | {found:.3g} | {found / first:.2f} | {' | '.join(others)} |"


def _failure(error: Exception) -> str:
    """Return the first line of an error, without folders, in a form for a table."""
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120].replace('|', '/')}" if str(error) else "failed"


def report(device: str, quick: bool, begun: float) -> Iterator[str]:
    """Yield the lines of the report as soon as they are known."""
    rounds, images = 1 if quick else 5, size(quick)[0]
    yield from [f"# This project on {'a GPU' if device == 'cuda' else 'a CPU'}, {measure.today()}", ""]
    yield from machine(device)
    if device == "cuda":
        yield from ["", "## The tests of the device", "", *suite()]
    yield from ["", "## Beside the CPU", ""]
    yield f"KT-pFL with five clients on digits, {rounds} rounds; the CPU in float32, one client after another."
    yield from ["", "| way | accuracy | farthest from the CPU's, any round and client | coefficients |"]
    yield "| --- | --- | --- | --- |"
    yield from beside_the_cpu(device, rounds)
    yield from ["", "## Speed", ""]
    yield f"Five clients of one architecture, {images} images each, an epoch in batches of {BATCH}."
    yield "Launches: the host's time in them. Device: the time that its kernels took; several may run at once."
    yield from ["", "| architecture | way | rounds/s | times float32's | memory, peak | launches | device |"]
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    yield from speeds(device, quick, begun + BUDGET)
    yield from ["", f"Taken in {time.monotonic() - begun:.0f} s."]


def main(arguments: list[str] | None = None) -> int:
    """Check, write the report, and return the exit code."""
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
