"""Every method on a federation of texts: clients with a mean of embeddings, and with convolutions."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline import models
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset, TokenShape
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import Compute, Privacy
from ktpfl_pipeline.methods import METHODS, create

SHAPE = TokenShape((6,), 14, 0)
BUILD = partial(models.build, shape=SHAPE, classes=toy.CLASSES)
ROUNDS = 2
SMALL: dict[str, dict[str, Any]] = {
    **{name: {"common": "fasttext"} for name in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl")},
    **{name: {"steps": 5} for name in ("fedtgp", "fedgh", "fedgen")},  # of the server
}
"""A common model that takes texts, and what else keeps a round short."""


def texts(number: int, seed: int) -> LabeledDataset:
    """Return texts of three to six words; each class has four words of its own."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % toy.CLASSES
    words = torch.randint(2, 6, (number, 6), generator=draws) + 4 * labels[:, None]
    lengths = torch.randint(3, 7, (number, 1), generator=draws)
    return LabeledDataset(words * (torch.arange(6) < lengths), labels)


def federation(method: Any, architectures: tuple[str, ...] = ("fasttext", "text_cnn"), **settings: Any) -> Federation:
    """Return three clients with texts."""
    if method.one_architecture:
        architectures = architectures[:1]
    fed = toy.federation(3, architectures=architectures, build=BUILD, public=texts(24, 0).inputs, **settings)
    clients = tuple(
        toy.replace(client, train=texts(17, n), validation=texts(6, 50 + n), test=texts(12, 100 + n))
        for n, client in enumerate(fed.clients)
    )
    training = replace(fed.training, optimizer="sgd" if method.own_step else "adam", learning_rate=0.03)
    return toy.again(fed, clients=clients, training=settings.get("training", training))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_on_texts(name: str) -> None:
    method = create(name, SMALL.get(name))
    done = engine.run(method, federation(method), Schedule(ROUNDS if name == "local" else 1))
    assert all(torch.tensor(loss).isfinite().all() for record in done.history for loss in record.loss.values())
    if name == "local":
        assert min(done.history[-1].accuracy["after_transfer"]) > 0.8, "guessing has a third"


@pytest.fixture
def workers() -> Iterator[ProcessesExecutor]:
    with closing(ProcessesExecutor(2)) as executor:
        yield executor


@pytest.mark.parametrize("architecture", ["text_lstm", "text_transformer"])
def test_workers_and_resuming_change_no_bit(architecture: str, workers: ProcessesExecutor, tmp_path: Path) -> None:
    method = create("kt_pfl")
    asked = partial(federation, method, (architecture, "text_gru"))
    straight = engine.run(method, asked(), Schedule(ROUNDS))
    parallel = engine.run(method, asked(executor=workers), Schedule(ROUNDS))
    assert toy.same(straight.state, parallel.state)
    place = tmp_path / "run.ckpt"
    engine.run(method, asked(), Schedule(1), checkpoint_file=place)
    resumed = engine.run(method, asked(), Schedule(ROUNDS), checkpoint_file=place)
    assert toy.same(straight.state, resumed.state)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_every_model_trains_in_other_precisions(dtype: Any) -> None:
    names = ("fasttext", "text_cnn", "text_gru", "text_lstm", "text_transformer")
    for name in names:
        method = create("local")
        done = engine.run(method, federation(method, (name,), compute=Compute("cpu", dtype=dtype)), Schedule(1))
        assert done.history[-1].loss["train"][0] < 1.3


def test_private_training_on_texts() -> None:
    pytest.importorskip("opacus")
    method = create("local")
    fed = federation(method)
    fed = toy.again(fed, training=replace(fed.training, privacy=Privacy(0.5, delta=1e-3)))
    done = engine.run(method, fed, Schedule(1))
    assert all(value > 0 for value in done.history[-1].loss["train"])
