"""What every method's models are judged by: as they are, and after further local training that is thrown away."""

import logging
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.measures import MEASURES
from ktpfl_pipeline.core.engine import Observer, Schedule
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.core.rounds.evaluation import pooled_test
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.methods.fedavg import FedAvg
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.local import Local

RULER = Schedule(rounds=2, participation=0.6, adapt_epochs=(1, 2))
EXECUTORS: dict[str, Any] = {
    "serial": SerialExecutor,
    "workers": lambda: ProcessesExecutor(2),
}


def without_seconds(history: list[RoundRecord]) -> list[RoundRecord]:
    return [replace(record, seconds={}) for record in history]


class TestAdaptation:
    @pytest.mark.parametrize("method", [Local(), FedAvg()], ids=str)
    def test_every_model_is_trained_further_and_judged_on_its_own_test_images(self, method: Any) -> None:
        fed = toy.alike("both")
        found = engine.run(method, fed, RULER)
        for e in (1, 2):
            tuned = fed.fine_tune(method.personal(found.state, toy.IDS, fed), e)
            expected = [evaluation.accuracy for evaluation in fed.evaluate(tuned, "test").values()]
            assert found.history[-1].accuracy[f"adapted_{e}"] == expected

    def test_in_the_last_five_evaluations(self) -> None:
        schedule = Schedule(rounds=8, evaluate_every=2, adapt_epochs=(1,))
        history = engine.run(Local(), toy.alike(clients=1), replace(schedule, rounds=14)).history
        assert [r.round for r in history if r.accuracy] == [2, 4, 6, 8, 10, 12, 14]
        assert [r.round for r in history if "adapted_1" in r.accuracy] == [6, 8, 10, 12, 14]

    @pytest.mark.parametrize("executor", EXECUTORS)
    def test_training_knows_nothing_of_it(self, executor: str) -> None:
        """The state, the matrix, and what is recorded beside; optimizers' moments cross rounds."""
        training = LocalTraining(epochs=2, batch_size=8, momentum=0.9, optimizer_state="kept")
        runs = []
        for adapt in ((1, 2), ()):
            fed = toy.federation(training=training, executor=EXECUTORS[executor]())
            with closing(fed.executor):
                runs.append(engine.run(KTpFL(), fed, replace(RULER, adapt_epochs=adapt)))
        assert toy.same(runs[0].state, runs[1].state)
        assert toy.same(runs[0].coefficients, runs[1].coefficients)
        for one, other in zip(*map(without_seconds, (run.history for run in runs)), strict=True):
            assert set(one.accuracy) - set(other.accuracy) == {"adapted_1", "adapted_2"}
            assert replace(one, accuracy={point: one.accuracy[point] for point in other.accuracy}) == other

    def test_resumed_it_is_the_same(self, tmp_path: Path) -> None:
        def crash(record: RoundRecord) -> None:
            if record.round == 1:
                raise KeyboardInterrupt

        def federation() -> Federation:
            return toy.alike("both")

        file = tmp_path / "run.ckpt"
        with pytest.raises(KeyboardInterrupt):
            engine.run(KTpFL(), federation(), RULER, checkpoint_file=file, observer=Observer(round=crash))
        resumed = engine.run(KTpFL(), federation(), RULER, checkpoint_file=file)
        whole = engine.run(KTpFL(), federation(), RULER)
        assert [record.accuracy for record in resumed.history] == [record.accuracy for record in whole.history]
        assert toy.same(resumed.state, whole.state)

    def test_private_samples_are_not_used_beyond_epsilon(self, caplog: pytest.LogCaptureFixture) -> None:
        training = LocalTraining(epochs=1, batch_size=8, privacy=Privacy(1.0))
        with caplog.at_level(logging.WARNING):
            history = engine.run(Local(), toy.alike(training=training), replace(RULER, rounds=1)).history
        assert not any(point.startswith("adapted") for point in history[0].accuracy)
        assert "training.privacy is set: accuracy after adaptation is not measured" in caplog.text


class TestClosingRound:
    def test_all_clients_take_part_in_the_last_round(self) -> None:
        schedule = Schedule(rounds=3, participation=0.4)
        plain, closing_round = (
            [r.cohort for r in engine.run(Local(), toy.alike(), replace(schedule, closing_round=asked)).history]
            for asked in (False, True)
        )
        assert closing_round == [*plain[:2], list(toy.IDS)]
        assert [len(cohort) for cohort in plain] == [2, 2, 2]


class TestMeasures:
    def test_of_the_models_after_transfer_on_their_clients_test_images(self) -> None:
        fed, method = toy.federation(), KTpFL()
        found = engine.run(method, fed, Schedule(rounds=2, participation=0.6))
        evaluations = fed.evaluate(method.personal(found.state, toy.IDS, fed), "test").values()
        for name, values in found.history[-1].measures.items():
            assert values == [getattr(evaluation, name) for evaluation in evaluations]
        assert set(found.history[0].measures) == set(MEASURES)

    def test_global_accuracy_is_on_all_clients_test_images_at_the_last_evaluation(self) -> None:
        fed = toy.alike()
        found = engine.run(FedAvg(), fed, Schedule(rounds=2, global_samples=10_000))
        assert "global_accuracy" not in found.history[0].measures
        local = found.history[1].accuracy["after_transfer"]  # of one model, on splits of equal size
        assert found.history[1].measures["global_accuracy"] == pytest.approx([sum(local) / 5] * 5, abs=1e-12)

    def test_a_pool_of_some_has_each_clients_own_images(self) -> None:
        fed = toy.alike()
        pool, whole = pooled_test(fed, 20), pooled_test(fed, 75)
        owned = {image.numpy().tobytes() for client in fed.clients for image in client.test.inputs}
        assert len(pool) == 20
        assert {image.numpy().tobytes() for image in pool.inputs} < owned
        assert {image.numpy().tobytes() for image in whole.inputs} == owned
        assert sorted(whole.labels.tolist()) == sorted(torch.cat([c.test.labels for c in fed.clients]).tolist())
        assert toy.same(pool, pooled_test(fed, 20))


def test_clients_without_validation_samples_have_no_validation_accuracy() -> None:
    fed = toy.federation()
    first, *others = fed.clients
    without = replace(first, validation=first.validation.take(torch.arange(0)))
    history = engine.run(Local(), replace(fed, clients=(without, *others)), Schedule(rounds=1)).history
    value, *values = history[-1].accuracy["validation"]
    assert math.isnan(value)
    assert all(0 <= each <= 1 for each in values)
