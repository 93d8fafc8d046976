"""The usual implementation: a DataLoader over PIL images with a transform per item, one client after another.

Apart from this structure, the code is not slower than necessary: images are in memory, batches for prediction are as
large as batches for training, and torch chooses its number of threads.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation

Loader = DataLoader[tuple[Tensor, Any]]


class Items(Dataset[tuple[Tensor, Any]]):
    """Images that are transformed one by one when they are read."""

    def __init__(self, given: LabeledDataset) -> None:
        """Store the images as PIL images."""
        arrays = [np.ascontiguousarray(image.permute(1, 2, 0).numpy()) for image in given.inputs]
        self.images = [Image.fromarray(array[..., 0] if array.shape[2] == 1 else array) for array in arrays]
        self.labels = given.labels.tolist()
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Tensor, Any]:
        """Return one image as numbers from -1 to 1, and its label."""
        return self.transform(self.images[place]), self.labels[place]


class Loop:
    """The clients of a federation, each with its module and its loaders."""

    def __init__(self, fed: Federation) -> None:
        """Make the modules and loaders that a round needs."""
        self.fed = fed
        self.modules = [fed.build(client.architecture) for client in fed.clients]
        size = fed.training.batch_size
        self.private = [DataLoader(Items(client.train), size, shuffle=True) for client in fed.clients]
        self.test = [DataLoader(Items(client.test), size) for client in fed.clients]
        labels = torch.zeros(len(fed.public), dtype=torch.int64)
        self.public = DataLoader(Items(LabeledDataset(fed.public, labels)), fed.distillation.batch_size)

    def local(self) -> None:
        """Train each client on its own data, and evaluate it."""
        self.train()
        self.evaluate()

    def fedavg(self) -> None:
        """Average the trained models and evaluate the average."""
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
        """Train each client for an epoch."""
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
        """Return the logits of all images."""
        module.eval()
        return torch.cat([module(images) for images, _ in loader])

    @torch.no_grad()
    def evaluate(self) -> list[float]:
        """Return each client's test accuracy."""
        found = []
        for module, loader in zip(self.modules, self.test, strict=True):
            hits = [(module.eval()(images).argmax(dim=1) == labels).sum() for images, labels in loader]
            found.append(float(sum(hits)))
        return found
