"""Every method runs on series and on vectors as it does on images."""

import math
from functools import cache, partial
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline import models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset, Shape
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.methods import ANY_ARCHITECTURES, METHODS, create

SERIES: Shape = (3, 16)
VECTOR: Shape = (5,)
SPLITS = tuple(enumerate((14, 6, 9)))  # training, validation, test samples


def samples(number: int, shape: Shape, seed: int) -> LabeledDataset:
    """Return features whose mean tells their class."""
    labels = torch.arange(number) % toy.CLASSES
    noise = torch.randn(number, *shape, generator=torch.Generator().manual_seed(seed))
    return LabeledDataset(noise + 2.0 * labels.view(-1, *[1] * len(shape)) - 2.0, labels)


@cache
def builder(shape: Shape) -> Any:
    """Return what builds models; one for all methods, so that each architecture is measured once."""
    return partial(models.build, shape=shape, classes=toy.CLASSES)


def federation(shape: Shape, architectures: tuple[str, ...]) -> Federation:
    clients = tuple(
        Client(n, architectures[n % len(architectures)], *(samples(size, shape, 3 * n + i) for i, size in SPLITS))
        for n in range(3)
    )
    return toy.again(toy.federation(), clients=clients, public=samples(20, shape, 99).inputs, build=builder(shape))


@pytest.mark.parametrize("method", METHODS)
def test_on_series(method: str) -> None:
    check_a_round(method, SERIES, ("cnn1d", "gru", "mlp") if method in ANY_ARCHITECTURES else ("cnn1d",))


@pytest.mark.parametrize("method", ["kt_pfl", "fedproto", "fml", "fedavg", "fedrep", "pfedhn"])
def test_on_vectors(method: str) -> None:
    """The multilayer perceptron is the one architecture for them, in every family of methods."""
    check_a_round(method, VECTOR, ("mlp",))


def check_a_round(method: str, shape: Shape, architectures: tuple[str, ...]) -> None:
    fed = federation(shape, architectures)
    made = create(
        method, {"common": architectures[0]} if method in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl") else {}
    )
    done = engine.run(made, fed, engine.Schedule(rounds=1))
    (record,) = done.history
    assert not record.diverged
    assert all(0 <= value <= 1 for values in record.accuracy.values() for value in values)
    assert all(math.isfinite(value) for values in record.accuracy.values() for value in values)
    if public := record.traffic.get("public_down"):
        assert set(public) <= {0, 13 * 4 * math.prod(shape)}  # the batch in float32
