"""The round loop: evaluation, and what a run survives."""

import math
import os
import time
import weakref
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
import toy
from cases import case
from torch import nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.engine import Observer, Run, Schedule
from ktpfl_pipeline.core.errors import DivergedError, InputError, LostError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.metrics import RoundRecord, Traffic, mean
from ktpfl_pipeline.core.rounds import evaluation
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.weights import Models, Params
from ktpfl_pipeline.methods.fedavg import FedAvgFT
from ktpfl_pipeline.methods.feddf import FedDF
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.tracking import round_metrics

SCHEDULE = Schedule(rounds=3, participation=0.6)
SETTINGS = {"method": "kt_pfl", "seed": 0}


@dataclass(frozen=True, eq=False)
class OneModel:
    model: Params


@dataclass(frozen=True)
class OneForAll:
    """A method of one global model, which the cohort's only client trains."""

    exchanges, one_architecture, own_step = frozenset({"parameters"}), True, False
    own_knowledge, needs_public, covered = frozenset[str](), False, True

    title, needs_head, needs_validation = "One for all", "", False
    misfits = Method.misfits

    def init(self, fed: Federation) -> OneModel:
        return OneModel(fed.initial_models()[fed.clients[0].id])

    def round(self, state: OneModel, cohort: list[int], t: int, fed: Federation) -> tuple[OneModel, RoundReport]:
        trained = fed.train(dict.fromkeys(cohort, state.model), t)
        return OneModel(trained[cohort[0]]), RoundReport(trained, dict.fromkeys(cohort, Traffic()))

    def personal(self, state: OneModel, clients: Iterable[int], fed: Federation) -> Models:
        return dict.fromkeys(clients, state.model)


class Measuring(OneForAll):
    """Reports a number of its own."""

    def round(self, state: OneModel, cohort: list[int], t: int, fed: Federation) -> tuple[OneModel, RoundReport]:
        after, report = super().round(state, cohort, t, fed)
        return after, replace(report, metrics={"trained": t * len(cohort)})


class Losing(SerialExecutor):
    """Loses a model in the named phase of the rounds whose number is given, counted as they are begun.

    Attributes:
        begun: rounds so far, those that were begun again too.
    """

    def __init__(self, phases: dict[int, str]) -> None:
        super().__init__()
        self.phases, self.begun = phases, 0

    def outcomes(self, setting: Setting, phase: str, *others: Any) -> Any:
        self.begun += phase == "train"  # a round's first phase
        if self.phases.get(self.begun) == phase:
            raise LostError("Client 7's model is gone.")
        return super().outcomes(setting, phase, *others)


def assert_same_run(one: Run, other: Run) -> None:
    assert [replace(r, seconds={}) for r in one.history] == [replace(r, seconds={}) for r in other.history]
    assert toy.same(one.coefficients, other.coefficients)
    assert toy.same(one.state, other.state)


def run(file: Path | None = None, observer: Observer = toy.SILENT, fed: Federation | None = None) -> Run:
    fed = fed or toy.federation()
    return engine.run(KTpFL(), fed, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=observer)


@pytest.fixture(scope="module")
def undisturbed() -> Run:
    return run()


class TestEvaluation:
    def test_every_so_many_rounds_and_always_the_last(self) -> None:
        fed = toy.federation(1)
        for every, evaluated in {1: [1, 2, 3, 4, 5], 2: [2, 4, 5], 3: [3, 5], 5: [5], 9: [5]}.items():
            history = engine.run(Local(), toy.again(fed), Schedule(rounds=5, evaluate_every=every)).history
            assert [record.round for record in history if record.accuracy] == evaluated, every
            assert [record.round for record in history if "test" in record.loss] == evaluated, every
            assert all("train" in record.loss and record.traffic for record in history), every

    def test_evaluating_changes_nothing(self) -> None:
        often, seldom = (
            engine.run(KTpFL(), toy.federation(), Schedule(rounds=3, evaluate_every=every)) for every in (1, 3)
        )
        assert toy.same(often.state, seldom.state)
        assert often.history[-1].accuracy == seldom.history[-1].accuracy

    def test_the_two_points_are_before_and_after_the_transfer(self) -> None:
        """Every client, sampled or not: after local training and after the transfer; the rest as they were."""
        fed, method, schedule = toy.federation(), KTpFL(), Schedule(rounds=2, participation=0.4)
        history = engine.run(method, fed, schedule).history
        state = method.init(fed)
        for t, record in enumerate(history, start=1):
            after, report = method.round(state, record.cohort, t, fed)
            for point, models in (
                ("after_local", {**state.models, **report.after_local}),
                ("after_transfer", after.models),
            ):
                expected = [evaluation.accuracy for evaluation in fed.evaluate(models, "test").values()]
                assert record.accuracy[point] == expected
            found = fed.evaluate(after.models, "validation")
            assert record.accuracy["validation"] == [found[n].accuracy for n in toy.IDS]
            assert record.loss["test"] == [e.loss for e in fed.evaluate(after.models, "test").values()]
            state = after

    def test_before_the_transfer_an_absent_client_has_the_model_of_the_round_before(self) -> None:
        """Where a client's model is the server's, it changes for those who were not sampled too."""
        fed, schedule = toy.federation(architectures=("linear",)), Schedule(rounds=3, participation=0.2)
        history = engine.run(OneForAll(), fed, schedule).history
        model = fed.initial_models()[3]
        for t, record in enumerate(history, start=1):
            (n,) = record.cohort
            trained = fed.train({n: model}, t)[n]
            before = {**dict.fromkeys(toy.IDS, model), n: trained}
            assert record.accuracy["after_local"] == [e.accuracy for e in fed.evaluate(before, "test").values()]
            model = trained
            after = fed.evaluate(dict.fromkeys(toy.IDS, model), "test")
            assert record.accuracy["after_transfer"] == [e.accuracy for e in after.values()]
        assert history[0].accuracy["after_local"] != history[0].accuracy["after_transfer"]

    def test_without_validation_data_there_is_no_validation(self) -> None:
        fed = toy.federation()
        none = torch.tensor([], dtype=torch.int64)
        first, second = (replace(each, validation=each.validation.take(none)) for each in fed.clients[:2])
        record = engine.run(Local(), toy.again(fed, clients=(first, second)), Schedule(rounds=1)).history[0]
        assert set(record.accuracy) == {"after_local", "after_transfer"}
        partly = toy.again(fed, clients=(fed.clients[0], second))
        known, unknown = engine.run(Local(), partly, Schedule(rounds=1)).history[0].accuracy["validation"]
        assert 0 <= known <= 1
        assert math.isnan(unknown)

    def test_a_model_that_did_not_change_is_not_evaluated_again(self) -> None:
        """Five clients, one trains a round: it alone is evaluated twice, or once where nothing comes back."""
        done: list[int] = []
        observer = Observer(progress=lambda phase, number, total: done.append(number) if phase == "evaluate" else None)
        schedule = Schedule(rounds=3, participation=0.2)
        history = engine.run(Local(), toy.federation(), schedule, observer=observer).history
        assert len(done) == (5 + 5) + 2 * (1 + 1)  # test and validation: everyone at first, then who trained
        assert all(len(record.accuracy["after_transfer"]) == 5 for record in history)

    def test_one_tensor_that_changed_is_another_model(self) -> None:
        """What clients share keeps its place where the rest is new, as a body of which only the head was trained."""
        fed = toy.federation(1)
        known = evaluation.Evaluator(Local(), fed)
        ((n, params),) = fed.initial_models().items()
        last = next(reversed(params))
        other = {**params, last: torch.arange(params[last].numel(), dtype=torch.float32).reshape(params[last].shape)}
        before, after = (known.of_models({n: model}, "test")[n] for model in (params, other))
        assert after == fed.evaluate({n: other}, "test")[n] != before
        assert known.of_models({n: dict(params)}, "test")[n] == before

    def test_models_that_are_made_to_be_evaluated_do_not_pile_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each client's copy lives for as long as its group is evaluated, of two clients here."""
        monkeypatch.setattr(evaluation, "AT_ONCE", 2)
        copies: list[weakref.ref[torch.Tensor]] = []
        most = 0

        class Copying(OneForAll):
            def personal(self, state: OneModel, clients: Iterable[int], fed: Federation) -> Models:
                nonlocal most
                made = {n: {name: value.clone() for name, value in state.model.items()} for n in clients}
                copies.extend(weakref.ref(next(iter(params.values()))) for params in made.values())
                most = max(most, sum(copy() is not None for copy in copies))
                return made

        schedule = Schedule(rounds=2, participation=0.2)
        history, same = (engine.run(method, toy.alike(), schedule).history for method in (Copying(), OneForAll()))
        assert [record.accuracy for record in history] == [record.accuracy for record in same]
        assert len(copies) == 4 + 5 + 5
        assert most <= 2 * 2 + 2  # before and after the round, and before it of the next group

    def test_what_was_evaluated_a_round_ago_is_not_made_again(self) -> None:
        """Before the transfer an absent client has the model that it had after the last, whose accuracy is known."""
        asked: list[list[int]] = []

        class Asked(OneForAll):
            def personal(self, state: OneModel, clients: Iterable[int], fed: Federation) -> Models:
                asked.append(list(clients))
                return super().personal(state, asked[-1], fed)

        schedule = Schedule(rounds=3, participation=0.2)
        fed = toy.alike()
        everyone = [client.id for client in fed.clients]
        history = engine.run(Asked(), fed, schedule).history
        assert asked == [[n for n in everyone if n not in history[0].cohort], everyone, everyone, everyone]
        for earlier, record in pairwise(history):
            for row, n in enumerate(everyone):
                if n not in record.cohort:
                    assert record.accuracy["after_local"][row] == earlier.accuracy["after_transfer"][row]


class TestRecords:
    def test_progress_names_the_phases_in_order(self) -> None:
        told: list[tuple[str, int, int]] = []
        engine.run(
            KTpFL(), toy.federation(2), Schedule(rounds=1), observer=Observer(progress=lambda *w: told.append(w))
        )
        phases = [phase for phase, done, _ in told if done == 1]
        assert phases == ["train", "predict", "distill", "evaluate", "evaluate", "evaluate"]
        assert all(total == 2 for *_, total in told)

    def test_each_record_is_told_after_its_checkpoint(self, tmp_path: Path) -> None:
        file = tmp_path / "run.ckpt"
        told: list[RoundRecord] = []

        def check(record: RoundRecord) -> None:
            told.append(record)
            assert len(torch.load(file, weights_only=True)["history"]) == record.round

        result = run(file, Observer(round=check))
        assert told == result.history

    def test_seconds(self, undisturbed: Run) -> None:
        for record in undisturbed.history:
            assert set(record.seconds) == {"train", "predict", "distill", "evaluate", "server", "round"}
            parts = sum(value for phase, value in record.seconds.items() if phase != "round")
            assert record.seconds["round"] == pytest.approx(parts, abs=1e-6)

    def test_coefficients_are_those_after_each_round(self, undisturbed: Run) -> None:
        assert undisturbed.coefficients.shape == (3, 5, 5)
        assert torch.equal(undisturbed.coefficients[-1], undisturbed.state.coefficients.float())
        assert (undisturbed.coefficients.sum(dim=2) - 1).abs().max() < 1e-6

    def test_losses_are_in_the_order_of_the_cohort_and_the_servers_in_that_of_their_names(self) -> None:
        backwards = toy.federation(4, executor=toy.ReverseExecutor())
        (record,) = engine.run(FedDF(), backwards, Schedule(rounds=1)).history
        losses = backwards.current.losses
        assert record.loss["train"] == [losses["train"][n] for n in (3, 7, 11, 12)]
        assert record.loss["fuse"] == [losses["fuse"][name] for name in ("conv", "linear", "mlp")]

    def test_mean(self) -> None:
        assert mean([0.5, 1.0, 0.0, 0.5]) == 0.5


def deep(name: str) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 3))


class TestDivergence:
    def test_names_client_round_and_mend(self, tmp_path: Path) -> None:
        file = tmp_path / "run.ckpt"
        training = LocalTraining(epochs=5, batch_size=4, learning_rate=1e9)
        fed = toy.federation(build=deep, training=training)
        with pytest.raises(
            DivergedError, match=r"^Client 3 diverged in round 1 \(its train loss is nan\); lower training"
        ):
            engine.run(Local(), fed, Schedule(rounds=2), checkpoint_file=file)
        assert not file.exists()

    def test_names_the_client_and_the_round_that_did(self, monkeypatch: pytest.MonkeyPatch) -> None:
        train = operations.train

        def explode(space: Any, n: int, params: Any, t: int) -> Any:
            outcome = train(space, n, params, t)
            return replace(outcome, loss=torch.tensor(float("inf"))) if (n, t) == (11, 3) else outcome

        monkeypatch.setattr(operations, "train", explode)
        told: list[int] = []
        with pytest.raises(DivergedError, match=r"Client 11 diverged in round 3 \(its train loss is inf\)"):
            engine.run(Local(), toy.federation(), SCHEDULE_ALL, observer=Observer(round=lambda r: told.append(r.round)))
        assert told == [1, 2]

    def test_names_the_servers_model(self) -> None:
        distillation = Distillation(epochs=50, batch_size=4, learning_rate=1e20)
        fed = toy.federation(architectures=("mlp",), distillation=distillation)
        with pytest.raises(DivergedError, match=r"^The server's mlp diverged in round 1 \(its fuse loss is nan\)"):
            engine.run(FedDF(), fed, Schedule(rounds=1))

    def test_weights_that_the_last_step_broke_are_noticed(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        train = operations.train

        def break_weights(space: Any, n: int, params: Any, t: int) -> Any:
            outcome = train(space, n, params, t)
            broken = {
                name: value * float("nan") if value.is_floating_point() else value for name, value in params.items()
            }
            return replace(outcome, value=broken) if n == 11 else outcome  # its loss is finite still

        monkeypatch.setattr(operations, "train", break_weights)
        file = tmp_path / "run.ckpt"
        with pytest.raises(DivergedError, match=r"Client 11 diverged in round 1 \(its weights after train are not fin"):
            engine.run(Local(), toy.federation(), SCHEDULE_ALL, checkpoint_file=file)
        assert not file.exists()

    def test_traffic_is_in_the_order_of_the_cohort(self) -> None:
        class Backwards(Local):
            def round(self, state: Any, cohort: list[int], t: int, fed: Federation) -> Any:
                after, report = super().round(state, cohort, t, fed)
                return after, replace(report, traffic={n: Traffic(predictions_up=n) for n in reversed(cohort)})

        (record,) = engine.run(Backwards(), toy.federation(), Schedule(rounds=1)).history
        assert record.traffic["knowledge_up"] == record.cohort


SCHEDULE_ALL = Schedule(rounds=4, evaluate_every=2)
EXECUTORS = {"serial": SerialExecutor, "workers": lambda: ProcessesExecutor(2)}


def unlucky(policy: str, executor: str = "serial") -> Federation:
    """A federation whose client 11 diverges in training, in some rounds of four."""
    architectures = ("linear", "mlp", "unlucky")
    return toy.federation(architectures=architectures, on_divergence=policy, executor=EXECUTORS[executor]())


@cache
def diverged(policy: str, executor: str) -> Run:
    """KT-pFL on it, whole."""
    fed = unlucky(policy, executor)
    with closing(fed.executor):
        return engine.run(KTpFL(), fed, SCHEDULE_ALL)


@pytest.mark.parametrize("executor", EXECUTORS)
class TestOnDivergence:
    def test_stop_ends_the_run_before_anybody_hears_of_it(self, executor: str) -> None:
        fed, told = unlucky("stop", executor), list[str]()
        with closing(fed.executor), pytest.raises(DivergedError, match=r"Client 11 diverged in round 2 \(its train lo"):
            engine.run(FedMD(), fed, SCHEDULE_ALL, observer=Observer(progress=lambda phase, *_: told.append(phase)))
        assert told[-1] == "train"

    def test_skip_is_a_round_in_which_the_client_was_not_sampled(self, executor: str) -> None:
        found, method = diverged("skip", executor), KTpFL()
        assert [record.diverged for record in found.history] == [[], [11], [11], []]
        plain = unlucky("stop", "serial" if executor == "workers" else executor)
        states = [method.init(plain)]
        for t, record in enumerate(found.history, start=1):
            assert record.cohort == [n for n in toy.IDS if n not in record.diverged]
            states.append(method.round(states[-1], record.cohort, t, plain)[0])
        assert toy.same(found.state, states[-1])
        assert toy.same(states[1].models[11], states[2].models[11])
        assert toy.finite(found.state)

    def test_restore_goes_on_with_the_weights_of_before(self, executor: str) -> None:
        fed, method, found = unlucky("restore", executor), KTpFL(), diverged("restore", executor)
        with closing(fed.executor):
            state, _ = method.round(method.init(fed), list(toy.IDS), 1, fed)
            trained = fed.train(state.models, 2)
        assert [record.diverged for record in found.history] == [[], [11], [11], []]
        assert all(record.cohort == list(toy.IDS) for record in found.history)
        assert [len(record.loss["train"]) for record in found.history] == [5, 4, 4, 5]
        assert trained[11] is state.models[11]
        assert not any(toy.same(trained[n], state.models[n]) for n in (3, 7, 12, 20))
        assert toy.finite(found.state)

    def test_resumes_to_the_same_result(self, executor: str, tmp_path: Path) -> None:
        policy = "restore" if executor == "workers" else "skip"

        def crash(record: RoundRecord) -> None:
            if record.round == 2:
                raise KeyboardInterrupt

        first, second = (unlucky(policy, executor) for _ in range(2))
        with closing(first.executor), closing(second.executor):
            with pytest.raises(KeyboardInterrupt):
                arguments = {"settings": SETTINGS, "checkpoint_file": tmp_path / "run.ckpt"}
                engine.run(KTpFL(), first, SCHEDULE_ALL, observer=Observer(round=crash), **arguments)
            resumed = engine.run(KTpFL(), second, SCHEDULE_ALL, **arguments)
        assert_same_run(resumed, diverged(policy, executor))


class TestDivergenceOfSomeKinds:
    @pytest.mark.parametrize("policy", ["skip", "restore"])
    def test_of_all_of_a_cohort_ends_the_run(self, policy: str) -> None:
        fed = toy.federation(
            build=deep, training=LocalTraining(epochs=5, batch_size=4, learning_rate=1e9), on_divergence=policy
        )
        with pytest.raises(DivergedError, match=r"Client 3 diverged in round 1 .*So did 7, 11, 12, 20\.$"):
            engine.run(FedMD(), fed, SCHEDULE_ALL)

    def test_while_distilling(self) -> None:
        skip, restore = (
            toy.federation(on_divergence=policy, executor=toy.Diverging(11, "distill"))
            for policy in ("skip", "restore")
        )
        run = engine.run(KTpFL(), skip, Schedule(rounds=1))
        assert toy.same(run.state, KTpFL().round(KTpFL().init(skip), [3, 7, 12, 20], 1, toy.again(skip))[0])
        plain = KTpFL().round(KTpFL().init(skip), list(toy.IDS), 1, toy.again(skip))
        run = engine.run(KTpFL(), restore, Schedule(rounds=1))
        assert toy.same(run.state.models, {**plain[0].models, 11: plain[1].after_local[11]})

    @pytest.mark.parametrize("policy", ["skip", "restore"])
    def test_of_a_prediction_though_the_weights_are_finite(self, policy: str) -> None:
        """There is nothing to restore: the client sits the round out."""
        fed = toy.federation(on_divergence=policy, executor=toy.Overflowing(11))
        run = engine.run(KTpFL(), fed, Schedule(rounds=1))
        assert toy.same(run.state, KTpFL().round(KTpFL().init(fed), [3, 7, 12, 20], 1, toy.again(fed))[0])
        with pytest.raises(DivergedError, match=r"Client 11 diverged in round 1 \(its predictions are not finite\)"):
            engine.run(KTpFL(), toy.again(fed, on_divergence="stop", executor=toy.Overflowing(11)), Schedule(rounds=1))

    def test_of_a_copy_that_is_made_to_be_evaluated(self) -> None:
        """It is the client's model as it is that is evaluated then; all else is as if nothing had been."""
        for policy in ("skip", "restore"):
            fed = toy.alike(on_divergence=policy, executor=toy.Diverging(11, "fine_tune"))
            found, plain = (engine.run(FedAvgFT(), each, Schedule(rounds=1)) for each in (fed, toy.again(fed)))
            assert toy.same(found.state, plain.state)
            assert found.history[0].diverged == []
            assert found.history[0].cohort == list(toy.IDS)
        stop = toy.again(fed, on_divergence="stop", executor=toy.Diverging(11, "fine_tune"))
        with pytest.raises(DivergedError, match=r"Client 11 diverged in round 1 \(its weights after fine_tune are not"):
            engine.run(FedAvgFT(), stop, Schedule(rounds=1))

    def test_of_the_servers_model_whatever_the_setting(self) -> None:
        distillation = Distillation(epochs=50, batch_size=4, learning_rate=1e20)
        fed = toy.federation(architectures=("mlp",), distillation=distillation, on_divergence="restore")
        with pytest.raises(DivergedError, match=r"^The server's mlp diverged in round 1"):
            engine.run(FedDF(), fed, Schedule(rounds=1))


class TestResume:
    @pytest.mark.parametrize("phase", ["train", "predict", "distill", "evaluate"])
    def test_after_a_crash_in_the_middle_of_a_round(self, undisturbed: Run, tmp_path: Path, phase: str) -> None:
        seen: list[str] = []

        def crash(name: str, done: int, total: int) -> None:
            seen.append(name)
            if name == phase and seen.count("train") > 6 and done == 2:  # round 3, the second client
                raise ConnectionAbortedError

        with pytest.raises(ConnectionAbortedError):
            run(tmp_path / "run.ckpt", Observer(progress=crash))
        watch = toy.Watch()
        assert_same_run(run(tmp_path / "run.ckpt", watch.observer), undisturbed)
        assert watch.resumed == 2

    def test_after_crash_upon_crash_in_one_federation(self, undisturbed: Run, tmp_path: Path) -> None:
        """The executor, its modules and its measurements are in whatever state the crash left them."""
        fed, file = toy.federation(), tmp_path / "run.ckpt"
        for t in (1, 2):
            seen: list[str] = []

            def crash(name: str, done: int, total: int, seen: list[str] = seen) -> None:
                seen.append(name)
                if seen.count("distill") == 5:  # the second client of this start's second round
                    raise ConnectionAbortedError

            with pytest.raises(ConnectionAbortedError):
                run(file, Observer(progress=crash), fed)
            assert len(torch.load(file, weights_only=True)["history"]) == t
        assert_same_run(run(file, fed=fed), undisturbed)

    def test_a_crash_while_the_checkpoint_is_written(
        self, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[int] = []

        def crash(number: int) -> None:
            calls.append(number)
            if len(calls) == 3:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "fsync", crash)
            run(tmp_path / "run.ckpt")
        assert list(tmp_path.glob("run.ckpt.*.partial"))
        watch = toy.Watch()
        assert_same_run(run(tmp_path / "run.ckpt", watch.observer), undisturbed)
        assert watch.resumed == 2

    @pytest.mark.parametrize("kept", [True, False], ids=["checkpoint", "no checkpoint"])
    def test_after_models_were_lost_with_their_worker(self, undisturbed: Run, tmp_path: Path, kept: bool) -> None:
        """Twice in one round; each round is told once, and with a checkpoint nothing before it is done again."""
        fed = toy.federation(executor=Losing({3: "distill", 4 if kept else 6: "evaluate"}))
        watch = toy.Watch()
        found = run(tmp_path / "run.ckpt" if kept else None, watch.observer, fed)
        assert_same_run(found, undisturbed)
        assert [record.round for record in watch.told] == [1, 2, 3]
        assert fed.executor.begun == (3 + 2 if kept else 3 + 3 + 3)

    def test_models_that_are_lost_again_and_again_end_the_run_with_a_sentence(
        self, undisturbed: Run, tmp_path: Path
    ) -> None:
        fed = toy.federation(executor=Losing(dict.fromkeys(range(2, 9), "train")))
        with pytest.raises(InputError, match=r"Round 2 was started 3 times, .*: Client 7's model is gone\. .* again"):
            run(tmp_path / "run.ckpt", fed=fed)
        assert_same_run(run(tmp_path / "run.ckpt"), undisturbed)

    def test_another_runs_checkpoint_is_refused(self, tmp_path: Path) -> None:
        arguments: dict[str, Any] = {"settings": SETTINGS, "checkpoint_file": tmp_path / "run.ckpt"}
        engine.run(KTpFL(), toy.federation(), Schedule(rounds=1), **arguments)
        with pytest.raises(InputError, match=r"run\.ckpt .*seed=0, now 1"):
            engine.run(
                KTpFL(),
                toy.federation(seed=1),
                SCHEDULE,
                settings={**SETTINGS, "seed": 1},
                checkpoint_file=tmp_path / "run.ckpt",
            )

    def test_a_run_that_continues_on_another_processor_says_so_once(
        self, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        arguments: dict[str, Any] = {"settings": SETTINGS, "checkpoint_file": tmp_path / "run.ckpt"}
        with pytest.raises(KeyboardInterrupt):
            engine.run(KTpFL(), toy.federation(), SCHEDULE, observer=Observer(round=interrupt), **arguments)
        assert not caplog.messages
        here = engine.processor()
        monkeypatch.setattr(engine, "processor", lambda: "Xeon (AVX2)")
        continued = engine.run(KTpFL(), toy.federation(), SCHEDULE, **arguments)
        assert_same_run(continued, undisturbed)
        assert caplog.messages == [
            f"Round 1 was computed on {here}, and the run continues on Xeon (AVX2): its results may differ in the last "
            "digits from those of an uninterrupted run."
        ]
        assert [one.kind for one in continued.warnings] == ["Another processor"]
        monkeypatch.undo()
        caplog.clear()
        finished = engine.run(KTpFL(), toy.federation(), SCHEDULE, **arguments)
        assert (finished.warnings, caplog.messages) == (continued.warnings, []), "nothing is left to compute"

    def test_without_a_checkpoint_nothing_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        engine.run(KTpFL(), toy.federation(), Schedule(rounds=1))
        assert list(tmp_path.iterdir()) == []


def interrupt(record: RoundRecord) -> None:
    raise KeyboardInterrupt


def run_until_the_middle_of_round_3(file: Path, told: int) -> None:
    started: list[str] = []

    def progress(phase: str, done: int, total: int) -> None:
        started.append(phase)
        if started.count("distill") == 3 * 2 + 2:  # between two clients
            os.write(told, b".")
            time.sleep(600)

    run(file, Observer(progress=progress))


def test_kill_9_in_the_middle_of_a_round(undisturbed: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    output, told = os.pipe()
    child = forked.start(run_until_the_middle_of_round_3, file, told)
    assert os.read(output, 1) == b"."
    forked.kill(child)
    watch = toy.Watch()
    assert_same_run(run(file, watch.observer), undisturbed)
    assert watch.resumed == 2


def test_the_last_rounds_are_all_evaluated_where_that_is_asked_for():
    for rounds, every, last, evaluated in (
        (30, 5, 5, [5, 10, 15, 20, 25, 26, 27, 28, 29, 30]),
        (7, 3, 1, [3, 6, 7]),
        (7, 9, 2, [6, 7]),
        (3, 1, 9, [1, 2, 3]),
    ):
        with case(rounds, every, last):
            assert Schedule(rounds, evaluate_every=every, evaluate_last=last).evaluations == evaluated


def test_a_method_reports_numbers_of_its_own(tmp_path: Path) -> None:
    """They are in the history, also of the rounds before a run was resumed, in MLflow's points and in the result."""
    fed, file = toy.alike(clients=1), tmp_path / "run.ckpt"
    engine.run(Measuring(), fed, Schedule(rounds=2), checkpoint_file=file)
    run = engine.run(Measuring(), fed, Schedule(rounds=3), checkpoint_file=file)
    assert [record.metrics for record in run.history] == [{"trained": 1.0}, {"trained": 2.0}, {"trained": 3.0}]
    assert round_metrics(run.history[1])["metrics/trained"] == 2.0


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_client_without_samples_is_refused(split: str) -> None:
    first, *others = toy.federation().clients
    empty = replace(first, **{split: first.train.take(torch.tensor([], dtype=torch.int64))})
    fed = replace(toy.federation(), clients=(empty, *others))
    with pytest.raises(InputError, match=f"^Client 3 has no {split} samples: give it some, or leave it out"):
        engine.run(Local(), fed, Schedule(1))
