"""The workloads of `training.py`, in a module that the workers of a cluster can import, and the usual loop."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from ktpfl_pipeline import models
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, ExecutorSettings, LocalTraining, Ray, has_bfloat16

PAPER = ("lenet", "alexnet", "resnet18", "shufflenet_v2")
TRAIN, TEST, SIZE, CLASSES, RATE = 500, 100, 28, 10, 0.01


@dataclass(frozen=True)
class Workload:
    """The work of a turn.

    Attributes:
        method: the name of the method in the registry and in `Loop`.
        architectures: the architecture of each client.
        channels: the number of channels of an image.
        public: the number of public images.
        images: the number of training images of a client.
        rounds: the number of rounds in a turn.
        turns: the number of turns of each way.
        ways: keys of `WAYS`; None takes all ways.
    """

    method: str
    architectures: tuple[str, ...]
    channels: int = 3
    public: int = 1
    images: int = TRAIN
    rounds: int = 3
    turns: int = 5
    ways: tuple[str, ...] | None = None


SERIAL = ExecutorSettings()
DTYPES = ("float32", "bfloat16") if has_bfloat16("cpu") else ("float32",)
"""The precisions for which this processor has instructions."""
LAST = {"memory_format": "channels_last"}
WAYS: dict[str, dict[str, Any]] = {
    "float32, one client after another": {"executor": SERIAL},
    "float32, workers": {},
    "float32, Ray cluster of this machine": {"executor": ExecutorSettings(ray=Ray())},
    "float32, workers, channels last": LAST,
    **{f"{name}, workers": {"dtype": name} for name in DTYPES[1:]},
    **{f"{name}, workers, channels last": {"dtype": name, **LAST} for name in DTYPES[1:]},
}
"""The settings of `compute` that differ from the reference. There is one worker per core."""
ALONE = tuple(way for way in WAYS if "Ray" not in way)
MINUTES = ("float32, workers", *(f"{name}, workers, channels last" for name in DTYPES))
"""The ways of a workload that takes minutes."""

WORKLOADS = {
    "fedavg": Workload("fedavg", ("mcmahan_unpadded",) * 20, channels=1, turns=3),
    "lenet": Workload("local", ("lenet",) * 2, rounds=20, ways=ALONE),
    "alexnet": Workload("local", ("alexnet",) * 2, turns=3, ways=ALONE),
    "resnet18": Workload("local", ("resnet18",) * 2, rounds=1, turns=3, ways=ALONE),
    "shufflenet_v2": Workload("local", ("shufflenet_v2",) * 2, rounds=1, turns=3, ways=ALONE),
    "kt_pfl": Workload("kt_pfl", PAPER * 5, public=3000, rounds=1, turns=1, ways=MINUTES),
}


def build(channels: int, name: str) -> nn.Module:
    return models.build(name, (channels, SIZE, SIZE), CLASSES)


def samples(number: int, channels: int, seed: int) -> LabeledDataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, channels, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    return LabeledDataset(images, torch.randint(0, CLASSES, (number,), generator=generator))


def federation(work: Workload, executor: ExecutorSettings = SERIAL, device: str = "cpu", **compute: Any) -> Federation:
    channels = work.channels
    clients = tuple(
        Client(n, name, samples(work.images, channels, n), samples(0, channels, n), samples(TEST, channels, 1000 + n))
        for n, name in enumerate(work.architectures)
    )
    return Federation(
        *(clients, samples(work.public, channels, 2000).inputs, work.public, CLASSES),
        build=partial(build, channels),
        training=LocalTraining(epochs=1, batch_size=128, learning_rate=RATE),
        distillation=Distillation(epochs=1, batch_size=256, learning_rate=RATE),
        compute=Compute(device, executor=executor, **compute),
    )


Loader = DataLoader[tuple[Tensor, Any]]


class Items(Dataset[tuple[Tensor, Any]]):
    """Images that are transformed one by one when they are read."""

    def __init__(self, given: LabeledDataset) -> None:
        arrays = [np.ascontiguousarray(image.permute(1, 2, 0).numpy()) for image in given.inputs]
        self.images = [Image.fromarray(array[..., 0] if array.shape[2] == 1 else array) for array in arrays]
        self.labels = given.labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Tensor, Any]:
        """Return one image as numbers from -1 to 1, and its label."""
        return self.transform(self.images[place]), self.labels[place]


class Loop:
    """The usual implementation: a DataLoader over PIL images with a transform per item, one client after another.

    Apart from this structure, the code is not slower than necessary: images are in memory, batches for prediction are
    as large as batches for training, and torch chooses its number of threads.
    """

    def __init__(self, fed: Federation) -> None:
        self.fed = fed
        self.modules = [fed.build(client.architecture) for client in fed.clients]
        size = fed.training.batch_size
        self.private = [DataLoader(Items(client.train), size, shuffle=True) for client in fed.clients]
        self.test = [DataLoader(Items(client.test), size) for client in fed.clients]
        labels = torch.zeros(len(fed.public), dtype=torch.int64)
        self.public = DataLoader(Items(LabeledDataset(fed.public, labels)), fed.distillation.batch_size)

    def local(self) -> None:
        self.train()
        self.evaluate()

    def fedavg(self) -> None:
        self.train()
        states = [module.state_dict() for module in self.modules]
        average = {name: sum(state[name] for state in states) / len(states) for name in states[0]}
        for module in self.modules:
            module.load_state_dict(average)
        self.evaluate()

    def kt_pfl(self) -> None:
        """Train, predict the public images, update the matrix client by client, distill, and evaluate."""
        self.train()
        soft = [F.softmax(self.predict(module, self.public), dim=1) for module in self.modules]
        n = len(soft)
        c = torch.full((n, n), 1 / n, requires_grad=True)
        gradient = torch.zeros_like(c)
        teachers: list[Tensor] = []
        for i in range(n):
            teachers.append(sum((c[i, j] * soft[j] for j in range(n)), torch.zeros(())))
            divergence = F.kl_div(soft[i].log(), teachers[i], reduction="batchmean")
            gradient += torch.autograd.grad(divergence + 0.7 * (c[i] - 1 / n).square().sum(), c)[0]
        for module, teacher in zip(self.modules, teachers, strict=True):
            self.distill(module, teacher.detach())
        self.evaluate()

    def train(self) -> None:
        for module, loader in zip(self.modules, self.private, strict=True):
            optimizer = torch.optim.SGD(module.train().parameters(), lr=self.fed.training.learning_rate)
            for images, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(module(images), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    def distill(self, module: nn.Module, teacher: Tensor) -> None:
        """Fit a model to its teacher for an epoch over the public images."""
        optimizer = torch.optim.SGD(module.eval().parameters(), lr=self.fed.distillation.learning_rate)
        targets = iter(torch.split(teacher, self.fed.distillation.batch_size))
        for images, _ in self.public:
            optimizer.zero_grad()
            F.kl_div(F.log_softmax(module(images), dim=1), next(targets), reduction="batchmean").backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    @torch.no_grad()
    def predict(self, module: nn.Module, loader: Loader) -> Tensor:
        module.eval()
        return torch.cat([module(images) for images, _ in loader])

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        found = []
        for module, loader in zip(self.modules, self.test, strict=True):
            hits = [(module.eval()(images).argmax(dim=1) == labels).sum() for images, labels in loader]
            found.append(float(sum(hits)))
        return found
