"""A toy federation, on which checks of a method take seconds.

It has up to five clients, 8 x 8 images in three linearly separable classes, and four tiny architectures. To reveal
errors, client ids differ from row numbers, training sets differ in size, and last batches are full, short or merged.
"""

import random
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import LabeledDataset, Shape, TokenShape, Vocabulary
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, LocalTraining

IDS = (3, 7, 11, 12, 20)
SIZES = (16, 17, 20, 9, 14)
"""Training images per client. With batch size 8, the batches are 8+8, 8+9, 8+8+4, 9 and 8+6."""
CLASSES = 3
ARCHITECTURES = ("linear", "conv", "mlp")


def build(name: str) -> nn.Module:
    """Return a new module: ``linear``, ``conv`` (with BatchNorm), ``mlp`` (with dropout) or ``both`` (with both)."""
    convolution = [nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]  # 4 x 3 x 3
    layers: dict[str, list[nn.Module]] = {
        "linear": [nn.Flatten(), nn.Linear(64, CLASSES)],
        "conv": [*convolution, nn.Linear(36, CLASSES)],
        "mlp": [nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, CLASSES)],
        "both": [*convolution, nn.Dropout(0.3), nn.Linear(36, CLASSES)],
    }
    return nn.Sequential(*layers[name])


@cache
def samples(number: int, seed: int, favorite: int = 0) -> LabeledDataset:
    """Return images whose class is the brightest third: top, middle or bottom. At least half have class `favorite`."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % CLASSES
    labels[: number // 2] = favorite
    labels = labels[torch.randperm(number, generator=generator)]
    images = torch.randint(0, 120, (number, 1, 8, 8), generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 3 * label : 3 * label + 2] += 110
    return LabeledDataset(images.to(torch.uint8), labels)


def drawn(number: int, shape: Shape, classes: int, seed: int) -> LabeledDataset:
    """Return random samples of any shape: images, features or tokens, with a pattern per class and noise."""
    labels = torch.arange(number) % classes
    if isinstance(shape, TokenShape):
        return _texts(labels, shape, seed)
    patterns = torch.randn(classes, *shape, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(number, *shape, generator=torch.Generator().manual_seed(seed))
    inputs = patterns[labels] + noise
    images = len(shape) == 3
    return LabeledDataset((inputs * 32 + 128).clamp(0, 255).to(torch.uint8) if images else inputs, labels)


def _texts(labels: Tensor, shape: TokenShape, seed: int) -> LabeledDataset:
    """Return texts of several lengths. About half of the tokens of a text are the token of its class."""
    generator = torch.Generator().manual_seed(seed)
    size, first = (len(labels), *shape), 0 if shape.padding is None else shape.padding + 1
    ids = torch.randint(first, shape.vocabulary, size, generator=generator)
    of_class = (first + labels % (shape.vocabulary - first)).unsqueeze(1)  # (n, 1)
    ids = torch.where(torch.rand(size, generator=generator) < 0.5, of_class, ids)
    if shape.padding is not None:
        lengths = torch.randint(1, shape[0] + 1, (len(labels), 1), generator=generator)
        ids = ids.masked_fill(torch.arange(shape[0]) >= lengths, shape.padding)
    return LabeledDataset(ids, labels, vocabulary=Vocabulary(shape.vocabulary, shape.padding))


def federation(
    clients: int = 5,
    *,
    architectures: tuple[str, ...] = ARCHITECTURES,
    dtype: Any = "float32",
    kind: type[Federation] = Federation,
    **settings: Any,
) -> Federation:
    """Return a new toy federation on the CPU. `settings` are further fields of `Federation`."""
    members = tuple(
        Client(
            id=IDS[i],
            architecture=architectures[i % len(architectures)],
            train=samples(SIZES[i], seed=10 * i, favorite=i % CLASSES),
            validation=samples(6, seed=10 * i + 1, favorite=i % CLASSES),
            test=samples(15, seed=10 * i + 2, favorite=i % CLASSES),
        )
        for i in range(clients)
    )
    defaults = {
        "clients": members,
        "public": samples(24, seed=1000).inputs,
        "public_batch_size": 13,
        "classes": CLASSES,
        "build": build,
        "training": LocalTraining(epochs=2, batch_size=8, learning_rate=0.1),
        # With frozen BatchNorm, learning from its own predictions does not change a model, as closed forms require.
        "distillation": Distillation(epochs=1, batch_size=8, learning_rate=0.05, batch_norm="frozen"),
        "compute": Compute(device="cpu", dtype=dtype),
    }
    return kind(**{**defaults, **settings})


def federation_for(method: Method[Any], one: str = "both", **settings: Any) -> Federation:
    """Return a federation of several architectures, or only of `one` if the method requires one architecture."""
    return federation(**{**settings, **({"architectures": (one,)} if method.one_architecture else {})})


def same(one: Any, other: Any) -> bool:
    """Return whether two results are equal: tensors bit for bit with equal dtype, dictionaries in any order."""
    return difference(one, other) == ""


def difference(one: Any, other: Any, where: str = "") -> str:
    """Return the first place where two results differ, such as ``"models[3]['1.weight']"``; empty if they are equal."""
    here = where or "it"
    if type(one) is not type(other):
        return here
    if isinstance(one, Tensor):
        return "" if one.dtype == other.dtype and torch.equal(one, other) else here
    pairs: list[tuple[str, Any, Any]]
    if isinstance(one, dict):
        pairs = [(f"{where}[{key!r}]", value, other.get(key)) for key, value in one.items()]
        return here if one.keys() != other.keys() else _first(pairs)
    if isinstance(one, list | tuple):
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(one, other, strict=False))]
        return here if len(one) != len(other) else _first(pairs)
    if is_dataclass(one):
        names, dot = [entry.name for entry in fields(one)], f"{where}." if where else ""
        pairs = [(f"{dot}{name}", getattr(one, name), getattr(other, name)) for name in names]
        return _first(pairs)
    return "" if bool(one == other) else here


def _first(pairs: list[tuple[str, Any, Any]]) -> str:
    return next((found for where, one, other in pairs if (found := difference(one, other, where))), "")


def global_generators() -> tuple[Any, ...]:
    """Return the states of the global random generators of torch, Python and NumPy."""
    legacy: Any = np.random.get_state()
    return torch.get_rng_state(), random.getstate(), legacy[1].tolist()
