"""Noise on predictions: what clients upload has it, of one stream per client and round, and nothing else does."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import ClientStates, Federation
from ktpfl_pipeline.core.knowledge.channel import noisy
from ktpfl_pipeline.core.settings import Adversaries, Knowledge
from ktpfl_pipeline.methods import create

TWO = Schedule(rounds=2, participation=0.6)


def federation(noise: float = 0.2, **settings: object) -> Federation:
    return toy.federation(knowledge=Knowledge(noise=noise), **settings)


def test_each_client_and_round_has_draws_of_its_own() -> None:
    fed, plain = federation(), toy.federation()
    models, batch = fed.initial_models(), fed.public_batch(1)
    honest = plain.logits(models, batch)
    for t in (1, 2):
        found = fed.logits(models, batch, t)
        for row, n in enumerate(models):
            expected = noisy(honest[row], 0.2, fed.stream("prediction noise", t, n))
            assert torch.equal(found[row], expected)
    assert not torch.equal(fed.logits(models, batch, 1), fed.logits(models, batch, 2))
    assert toy.same(fed.logits(dict(reversed(models.items())), batch, 1).flip(0), fed.logits(models, batch, 1))


@pytest.mark.parametrize("method", ["kt_pfl", "fedmd", "scarlet"])
def test_workers_change_nothing(method: str) -> None:
    made = create(method)
    serial = engine.run(made, federation(), TWO)
    with closing(ProcessesExecutor(2)) as executor:
        workers = engine.run(made, federation(executor=executor), TWO)
    assert toy.same(workers.state, serial.state)
    assert [record.accuracy for record in workers.history] == [record.accuracy for record in serial.history]
    assert not toy.same(engine.run(made, federation(0.0), TWO).state, serial.state)


@pytest.mark.parametrize("method", ["feddf", "fml", "fedproto", "local"])
def test_methods_that_upload_no_predictions_run_unchanged(method: str) -> None:
    """FedDF's server predicts with models that it received, which have no noise."""
    made = create(method, {"common": "linear"} if method == "fml" else {})
    runs = [engine.run(made, federation(noise), Schedule(rounds=2)) for noise in (0.0, 0.5)]
    assert toy.same(runs[0].state, runs[1].state)


@pytest.mark.parametrize(
    "knowledge", [{"encoding": "top_k", "k": 2}, {"encoding": "uint8"}, {"select": 0.5}, {"cache": 2}]
)
def test_noise_comes_before_the_encoding(knowledge: dict) -> None:
    """The server decodes what it would decode of noisy predictions."""
    fed = toy.federation(knowledge=Knowledge(noise=0.3, **knowledge))
    models = fed.initial_models()
    found = exchange.train_and_predict(fed, models, list(toy.IDS), 1)
    encoded = toy.again(fed, knowledge=replace(fed.knowledge, noise=0.0), client_states=ClientStates())
    given = fed.logits(fed.train(models, 1), fed.public_batch(1), 1)
    expected = exchange.train_and_predict(toy.again(encoded, executor=toy.Script(given)), models, list(toy.IDS), 1)
    assert torch.equal(found.logits, expected.logits)
    assert found.sizes == expected.sizes


def test_new_clients_are_taught_by_noisy_predictions() -> None:
    """The trained clients predict once more for them."""
    fed, made = federation(), create("fedmd")
    state, _ = made.round(made.init(fed), [3, 7], 1, fed)
    there = made.personal(state, [3, 7], fed)
    one, other = (made.join(state, there, [20], each).models for each in (fed, toy.again(fed, knowledge=Knowledge())))
    assert toy.distance(one, other) > 1e-3


def test_adversaries_upload_what_they_would_without_noise() -> None:
    fed = federation(adversaries=Adversaries(0.2, "random"))
    (liar,) = fed.adversary_ids
    models, batch = fed.initial_models(), fed.public_batch(1)
    plain = toy.again(fed, knowledge=Knowledge())
    row = list(models).index(liar)
    assert torch.equal(fed.logits(models, batch, 1)[row], plain.logits(models, batch, 1)[row])
