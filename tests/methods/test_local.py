"""Local-only training: the model of each client is what one client training alone would get."""

import pytest
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import LEDGERS
from ktpfl_pipeline.core.settings import Distillation, LocalTraining, Privacy
from ktpfl_pipeline.methods.local import Local, LocalMatched


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


def test_distillation_and_the_public_batch_change_nothing() -> None:
    """Runs that differ only in settings of `Local.ignores` are the same run."""
    fed = toy.federation()
    other = Distillation(epochs=5, batch_size=3, learning_rate=0.5, temperature=4.0, batch_norm="domain_specific")
    changed = toy.again(fed, distillation=other, public_batch_size=fed.public_batch_size - 1)
    one, two = (engine.run(Local(), each, Schedule(rounds=2, adapt_epochs=(1,))) for each in (fed, changed))
    assert toy.same(one.state.models, two.state.models)
    assert [record.accuracy for record in one.history] == [record.accuracy for record in two.history]
    assert not Local.depends_on("distillation.epochs")
    assert not Local.depends_on("knowledge")
    assert Local.depends_on("public.source")
    assert LocalMatched.depends_on("distillation.epochs")


class TestMatchedWork:
    def test_epochs_equal_the_work_rounded_up(self) -> None:
        """E = 2, and 13 public images for clients with 16, 17, 20, 9 and 14 of their own."""
        fed = toy.federation()
        assert [LocalMatched().epochs(n, fed) for n in toy.IDS] == [3, 3, 3, 4, 3]
        assert [LocalMatched(work=2.2, public=False).epochs(n, fed) for n in toy.IDS] == [5] * 5

    @pytest.mark.parametrize(("work", "epochs"), [(1.1, 55), (1.11, 56)])
    def test_epochs_are_no_more_because_of_an_error_of_float64(self, work: float, epochs: int) -> None:
        """float64 computes 1.1 x 50 = 55.00000000000001."""
        fed = toy.federation(training=LocalTraining(epochs=50))
        assert LocalMatched(work, public=False).epochs(toy.IDS[0], fed) == epochs

    def test_each_client_trains_for_its_own_epochs(self) -> None:
        fed = toy.alike()
        run = engine.run(LocalMatched(), fed, Schedule(rounds=1))
        initial = fed.initial_models()
        for n, size in zip(toy.IDS, toy.SIZES, strict=True):
            epochs = 4 if size == 9 else 3
            longer = toy.alike(training=LocalTraining(epochs=epochs, batch_size=8, learning_rate=0.1))
            assert toy.same(run.state.models[n], longer.train({n: initial[n]}, 1)[n])
            assert run.history[0].work["samples"][toy.IDS.index(n)] == epochs * size

    def test_without_extra_epochs_it_is_local_only(self) -> None:
        matched, alone = (
            engine.run(method, toy.federation(), Schedule(rounds=2, participation=0.6))
            for method in (LocalMatched(work=1.0, public=False), Local())
        )
        assert toy.same(matched.state, alone.state)

    def test_private_training_counts_its_epochs_by_itself(self) -> None:
        fed = toy.alike(training=LocalTraining(epochs=1, privacy=Privacy(1.0)))
        with pytest.raises(InputError, match=r"^training\.privacy is set, which excludes Local-only \(matched work\)"):
            engine.run(LocalMatched(), fed, Schedule(rounds=1))
