"""Local-only training: the model of each client is what one client training alone would get."""

import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import LEDGERS
from ktpfl_pipeline.methods.local import Local


def test_is_local_sgd_round_after_round() -> None:
    run = engine.run(Local(), toy.federation(), Schedule(rounds=3))
    fed = toy.federation()
    models = fed.initial_models()
    for t in (1, 2, 3):
        models = fed.train(models, t)
    assert toy.same(run.state.models, models)


def test_the_other_clients_do_not_matter() -> None:
    everyone = engine.run(Local(), toy.federation(), Schedule(rounds=2))
    fed = toy.federation()
    alone = engine.run(Local(), toy.again(fed, clients=fed.clients[1:2]), Schedule(rounds=2))
    assert toy.same(alone.state.models[7], everyone.state.models[7])


def test_only_the_cohort_trains() -> None:
    run = engine.run(Local(), toy.federation(), Schedule(rounds=3, participation=0.4))
    fed = toy.federation()
    models = fed.initial_models()
    for record in run.history:
        models = {**models, **fed.train({n: models[n] for n in record.cohort}, record.round)}
    assert toy.same(run.state.models, models)


def test_sends_nothing() -> None:
    run = engine.run(Local(), toy.federation(), Schedule(rounds=1))
    assert run.history[0].traffic == {ledger: [0] * 5 for ledger in LEDGERS}
    assert run.coefficients is None


def test_nothing_comes_back_after_local_training() -> None:
    run = engine.run(Local(), toy.federation(), Schedule(rounds=3, participation=0.6))
    for record in run.history:
        assert record.accuracy["after_local"] == record.accuracy["after_transfer"]
