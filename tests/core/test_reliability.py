"""Clients that drop out, come late or train less: who, what happens then, and that nothing else changes."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine, exchange
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.rng import drawn
from ktpfl_pipeline.core.rounds.cohort import absentees
from ktpfl_pipeline.core.settings import Budgets, LocalTraining, Reliability, Stragglers
from ktpfl_pipeline.methods import create

ALL_THREE = Reliability(0.6, Stragglers(0.4, 1), Budgets(0.4, 0.5))


def unreliable(reliability: Reliability = ALL_THREE, **settings: Any) -> Federation:
    return toy.federation(reliability=reliability, **settings)


def timeless(run: engine.Run) -> Any:
    return run.state, [replace(record, seconds={}) for record in run.history], run.coefficients


def test_drawn_are_nested_by_share_and_told_apart_by_purpose_and_seed() -> None:
    few, many = (drawn("stragglers", share, range(20), 3) for share in (0.1, 0.4))
    assert (len(few), len(many)) == (2, 8)
    assert set(few) < set(many)
    assert (
        len({tuple(drawn(purpose, 0.4, range(20), seed)) for purpose in ("stragglers", "budgets") for seed in (0, 1)})
        == 4
    )


def test_all_show_up_late_by_nothing_is_today_bit_for_bit() -> None:
    plain = engine.run(create("kt_pfl"), toy.federation(), Schedule(2, participation=0.6))
    sure = engine.run(create("kt_pfl"), unreliable(Reliability()), Schedule(2, participation=0.6))
    assert toy.same(timeless(plain), timeless(sure))
    assert all((record.absent, record.late) == ([], []) for record in sure.history)


class TestAvailability:
    def test_is_the_share_of_clients_that_show_up_in_the_long_run(self) -> None:
        away = [n for t in range(200) for n in absentees(range(20), 0.7, t, 0)]
        assert 0.27 < len(away) / 4000 < 0.33
        assert absentees(range(20), 1.0, 1, 0) == []

    def test_who_is_absent_is_as_if_not_sampled(self) -> None:
        """The round is that of the others, bit for bit, and every method sees the same ones."""
        reliability, method = Reliability(0.6), create("kt_pfl")
        fed = unreliable(reliability, rounds=1)
        done = engine.run(method, fed, Schedule(1))
        (record,) = done.history
        assert record.absent == absentees(fed.by_id, reliability.availability, 1, fed.seed) != []
        assert sorted([*record.cohort, *record.absent]) == sorted(fed.by_id)
        assert record.sampled == set(fed.by_id)
        others = toy.federation(rounds=1)
        state, _ = method.round(method.init(others), record.cohort, 1, others)
        assert toy.same(done.state, state)
        assert engine.run(create("local"), unreliable(reliability), Schedule(1)).history[0].absent == record.absent

    @pytest.mark.parametrize("name", ["kt_pfl", "fedavg"])
    def test_a_round_in_which_nobody_shows_up_changes_nothing(self, name: str) -> None:
        fed = toy.alike(reliability=Reliability(1e-6))
        method = create(name)
        done = engine.run(method, fed, Schedule(2))
        assert [record.cohort for record in done.history] == [[], []]
        assert toy.same(done.state, method.init(fed))
        assert done.coefficients is None
        assert all(len(record.accuracy["after_transfer"]) == 5 for record in done.history)
        assert all(values == [] for record in done.history for values in record.traffic.values())

    def test_there_is_a_matrix_of_every_round(self) -> None:
        """Of one in which nobody showed up, that before it; of the first, the one that came then."""
        seed = next(
            seed
            for seed in range(100)
            if [len(absentees(toy.IDS, 0.3, t, seed)) == 5 for t in (1, 2, 3)] == [True, False, True]
        )
        done = engine.run(create("kt_pfl"), unreliable(Reliability(0.3), seed=seed), Schedule(3))
        assert [bool(record.cohort) for record in done.history] == [False, True, False]
        assert done.coefficients is not None
        assert done.coefficients.shape == (3, 5, 5)
        assert torch.equal(done.coefficients[1], done.coefficients[2])


class TestStragglers:
    @pytest.mark.parametrize("delay", [1, 2])
    def test_predictions_are_of_the_model_that_was_trained_so_many_turns_ago(self, delay: int) -> None:
        fed = unreliable(Reliability(stragglers=Stragglers(0.4, delay)))
        slow = fed.straggler_ids
        assert len(slow) == 2
        models = fed.initial_models()
        trained: list[Any] = []
        for t in (1, 2, 3):
            upload = exchange.train_and_predict(fed, models, list(toy.IDS), t)
            fed.client_states.end_round()
            fresh = fed.logits(upload.models, upload.batch, t)
            old = [fed.initial_models()] * delay + trained
            stale = fed.logits(old[t - 1], upload.batch, t)
            for row, n in enumerate(toy.IDS):
                assert torch.equal(upload.logits[row], stale[row] if n in slow else fresh[row])
            trained.append(upload.models)
            models = upload.models

    def test_sit_out_where_models_travel_and_where_nothing_does_they_are_not_late(self) -> None:
        reliability = Reliability(stragglers=Stragglers(0.4, 2))
        runs = {
            name: engine.run(create(name), toy.alike(reliability=reliability), Schedule(4, evaluate_every=4)).history
            for name in ("fedavg", "fedmd", "local")
        }
        slow = toy.alike(reliability=reliability).straggler_ids
        rest = [n for n in toy.IDS if n not in slow]
        assert [record.cohort for record in runs["fedavg"]] == [list(toy.IDS), rest, rest, list(toy.IDS)]
        assert [record.late for record in runs["fedavg"]] == [[], slow, slow, []]
        assert all(record.cohort == list(toy.IDS) for name in ("fedmd", "local") for record in runs[name])
        assert [runs[name][0].late for name in ("fedmd", "local")] == [slow, []]

    @pytest.mark.parametrize("name", ["kt_pfl_joint", "kt_pfl_likelihood"])
    def test_sit_out_where_models_travel_beside_predictions_and_are_not_late_with_either(self, name: str) -> None:
        """The model of a round is uploaded in that round; nothing stands for it that is older."""
        fed = unreliable(Reliability(stragglers=Stragglers(0.4, 2)))
        rest = [n for n in toy.IDS if n not in fed.straggler_ids]
        done = engine.run(create(name), fed, Schedule(3, evaluate_every=3))
        assert [record.cohort for record in done.history] == [list(toy.IDS), rest, rest]
        assert [record.late for record in done.history] == [[], fed.straggler_ids, fed.straggler_ids]
        assert not any(kept for phase, kept in fed.client_states.kept.items() if "late" in phase)


class TestBudgets:
    def test_allow_that_share_of_the_epochs_one_at_least(self) -> None:
        fed = unreliable(Reliability(budgets=Budgets(0.4, 0.25)))
        (poor, *_), rich = fed.budgeted_ids, next(n for n in fed.by_id if n not in fed.budgeted_ids)
        assert [fed.affordable(poor, epochs) for epochs in (0, 1, 4, 10, 20)] == [0, 1, 1, 2, 5]
        assert [fed.affordable(rich, epochs) for epochs in (0, 1, 4)] == [0, 1, 4]

    def test_are_drawn_from_the_clients_of_the_run_wherever_they_are(self) -> None:
        """Workers hold a part of them, and newcomers come later."""
        fed = unreliable(Reliability(budgets=Budgets(0.4, 0.25)))
        some = replace(fed, clients=fed.clients[:2])
        assert 0 < len(fed.budgeted_ids) < len(fed.clients)
        assert some.budgeted_ids == fed.budgeted_ids
        assert replace(some, clients=fed.clients).budgeted_ids == fed.budgeted_ids

    @pytest.mark.parametrize(
        "name", ["local", "fedproto", "fml", "ditto", "fedrep", "fd", "local_matched", "fedkd", "fedmrl"]
    )
    def test_a_round_is_that_of_fewer_epochs_for_whom_they_are_and_that_of_all_for_the_others(self, name: str) -> None:
        method = create(name, {"fedrep": {"body_epochs": 2}, "local_matched": {"public": False}}.get(name))
        training = LocalTraining(epochs=4, batch_size=8, learning_rate=0.1)
        some, full, half = (
            toy.federation_for(
                method, clients=3, training=replace(training, epochs=epochs), reliability=Reliability(budgets=budgets)
            )
            for epochs, budgets in ((4, Budgets(0.4, 0.5)), (4, Budgets()), (2, Budgets()))
        )
        after = [method.round(method.init(fed), [*fed.by_id], 1, fed)[1].after_local for fed in (some, full, half)]
        assert 0 < len(some.budgeted_ids) < 3
        for n in some.by_id:
            expected = after[2][n] if n in some.budgeted_ids else after[1][n]
            assert toy.same(dict(after[0][n]), dict(expected))

    def test_models_that_are_adapted_to_be_judged_take_all_epochs(self) -> None:
        poor, rich = (toy.federation(reliability=Reliability(budgets=Budgets(share, 0.5))) for share in (1.0, 0.0))
        assert toy.same(*(fed.fine_tune(fed.initial_models(), 2) for fed in (poor, rich)))


@pytest.mark.parametrize("name", ["kt_pfl", "fedavg"])
def test_resumed_and_with_workers_all_is_as_in_one_go(name: str, tmp_path: Path) -> None:
    method, rounds = create(name), 4
    fed = toy.alike("both", reliability=ALL_THREE, rounds=rounds)
    whole = engine.run(method, fed, Schedule(rounds))
    assert any(record.absent for record in whole.history)
    assert any(record.late for record in whole.history)
    file = tmp_path / "checkpoint.pt"
    with closing(ProcessesExecutor(2)) as workers:
        engine.run(method, toy.again(fed, executor=workers), Schedule(2), checkpoint_file=file)
    resumed = engine.run(method, toy.again(fed), Schedule(rounds), checkpoint_file=file)
    assert toy.same(timeless(resumed), timeless(whole))
