"""The workloads of `training.py`, in a module that the workers of a cluster can import."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import measure
import torch
from torch import nn

from ktpfl_pipeline import models
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, ExecutorSettings, LocalTraining, Ray

PAPER = ("lenet", "alexnet", "resnet18", "shufflenet_v2")
TRAIN, TEST, SIZE, CLASSES, RATE = 500, 100, 28, 10, 0.01


@dataclass(frozen=True)
class Workload:
    """The work of a turn.

    Attributes:
        method: the name of the method in the registry and in `naive.Loop`.
        architectures: the architecture of each client.
        channels: the number of channels of an image.
        public: the number of public images.
        rounds: the number of rounds in a turn.
        turns: the number of turns of each way.
        ways: keys of `WAYS`; None takes all ways.
        sampled_every: the seconds between measurements of memory; see `measure.in_turn`.
    """

    method: str
    architectures: tuple[str, ...]
    channels: int = 3
    public: int = 1
    rounds: int = 3
    turns: int = 5
    ways: tuple[str, ...] | None = None
    sampled_every: float | None = None


SERIAL = ExecutorSettings()
WAYS: dict[str, dict[str, Any]] = {
    "float32, one client after another": {"executor": SERIAL},
    "float32, workers": {},
    "float32, Ray cluster of this machine": {"executor": ExecutorSettings(ray=Ray())},
    "float32, workers, channels last": {"memory_format": "channels_last"},
    **{f"{name}, workers": {"dtype": name} for name in measure.DTYPES[1:]},
    **{
        f"{name}, workers, channels last": {"dtype": name, "memory_format": "channels_last"}
        for name in measure.DTYPES[1:]
    },
}
"""The settings of `compute` that differ from the reference. There is one worker per core."""
ALONE = tuple(way for way in WAYS if "Ray" not in way)
MINUTES = ("float32, workers", *(f"{name}, workers, channels last" for name in measure.DTYPES))
"""The ways of a workload that takes minutes."""

WORKLOADS = {
    "fedavg": Workload("fedavg", ("mcmahan_unpadded",) * 20, channels=1, turns=3),
    "lenet": Workload("local", ("lenet",) * 2, rounds=20, ways=ALONE),
    "alexnet": Workload("local", ("alexnet",) * 2, turns=3, ways=ALONE),
    "resnet18": Workload("local", ("resnet18",) * 2, rounds=1, turns=3, ways=ALONE),
    "shufflenet_v2": Workload("local", ("shufflenet_v2",) * 2, rounds=1, turns=3, ways=ALONE),
    "kt_pfl": Workload("kt_pfl", PAPER * 5, public=3000, rounds=1, turns=1, ways=MINUTES, sampled_every=2.0),
}


def build(channels: int, name: str) -> nn.Module:
    """Return a model of the registry, or McMahan's CNN without padding."""
    if name != "mcmahan_unpadded":
        return models.build(name, (channels, SIZE, SIZE), CLASSES)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, CLASSES)),
    )


def samples(number: int, channels: int, seed: int) -> LabeledDataset:
    """Return random images and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, channels, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return LabeledDataset(images, torch.randint(0, CLASSES, (number,), generator=generator))


def federation(work: Workload, executor: ExecutorSettings = SERIAL, **compute: Any) -> Federation:
    """Return the workload for the engine."""
    channels = work.channels
    clients = tuple(
        Client(n, name, samples(TRAIN, channels, n), samples(0, channels, n), samples(TEST, channels, 1000 + n))
        for n, name in enumerate(work.architectures)
    )
    return Federation(
        clients,
        samples(work.public, channels, 2000).inputs,
        public_batch_size=work.public,
        classes=CLASSES,
        build=partial(build, channels),
        training=LocalTraining(epochs=1, batch_size=128, learning_rate=RATE),
        distillation=Distillation(epochs=1, batch_size=256, learning_rate=RATE),
        compute=Compute("cpu", executor=executor, **compute),
    )
