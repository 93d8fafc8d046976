"""The promises that every method keeps. A method joins by its line in `METHODS`; nothing here knows one by name."""

import copy
import math
import shutil
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, get_type_hints

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Observer, Run, Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.executors.workers import WorkersExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method, Personal
from ktpfl_pipeline.core.metrics import LEDGERS, RoundRecord, Traffic
from ktpfl_pipeline.core.setting import LocalTraining
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods import METHODS, create

# What a method needs to show itself in three rounds on toy data, where its defaults are made for longer runs.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {name: {"common": "linear"} for name in ("fml", "fedkd", "fedmrl")}

# Rounds after which a method has learned that leaves a part of the model as it was drawn, or makes it of few numbers.
SLOW = {"FedBABU": 12, "PFedHN": 5}

# Server matrices in whose rows the cohort writes what it finds of models that absent clients have stored.
OF_STORED_MODELS = {"affinity", "relations"}  # FedFomo, APPLE

# The first method of each kind of state, and so of each way in which models are given to clients and taken back.
REPRESENTATIVES = list({get_type_hints(METHODS[name].kind.init)["return"]: name for name in reversed(METHODS)}.values())

SCHEDULE = Schedule(rounds=3, participation=0.6)  # 3 of 5 clients a round
SETTINGS = {"what": "toy"}
TRAINING = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)


@pytest.fixture(scope="module", params=list(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def method(name: str) -> Method[Any]:
    return create(name, HYPERPARAMETERS.get(name))


@pytest.fixture
def fed(method: Method[Any]) -> Federation:
    return toy.federation_for(method, training=TRAINING)


@pytest.fixture
def three(method: Method[Any]) -> Federation:
    """Three clients, where more of them show nothing more."""
    return toy.federation_for(method, clients=3, training=TRAINING)


@pytest.fixture(scope="module")
def kept(method: Method[Any], name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the checkpoints after each round of the straight run."""
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def straight(method: Method[Any], kept: Path) -> Run:
    """One undisturbed run, its checkpoint after round t kept as ``t.ckpt``."""
    file = kept / "run.ckpt"
    observer = Observer(round=lambda record: shutil.copy(file, kept / f"{record.round}.ckpt"))
    fed = toy.federation_for(method, training=TRAINING)
    return engine.run(method, fed, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=observer)


def timeless(history: list[RoundRecord]) -> list[RoundRecord]:
    return [replace(record, seconds={}) for record in history]


def assert_same_run(one: Run, other: Run) -> None:
    assert toy.same(timeless(one.history), timeless(other.history))
    assert toy.same(one.coefficients, other.coefficients)
    assert toy.same(one.state, other.state)


def personal(method: Method[Any], state: Any, fed: Federation) -> Models:
    return method.personal(state, [client.id for client in fed.clients], fed)


def entries(state: Any) -> dict[str, Any]:
    return {entry.name: getattr(state, entry.name) for entry in fields(state)}


class TestContract:
    def test_learns(self, method: Method[Any], three: Federation) -> None:
        fed = toy.again(three, training=replace(three.training, epochs=2))
        before = [evaluation.accuracy for evaluation in fed.evaluate(fed.initial_models(), "test").values()]
        rounds = SLOW.get(type(method).__name__, 3)
        schedule = Schedule(rounds=rounds, evaluate_every=rounds)
        after = engine.run(method, fed, schedule).history[-1].accuracy["after_transfer"]
        assert fmean(before) < 0.5
        assert fmean(after) > 0.75
        assert min(after) > 1 / toy.CLASSES

    def test_repeats_bit_for_bit_in_any_order_of_visits(
        self, method: Method[Any], fed: Federation, straight: Run
    ) -> None:
        torch.manual_seed(99)  # which no draw may depend on, and none may move
        before = toy.global_generators()
        assert_same_run(engine.run(method, toy.again(fed, executor=toy.ReverseExecutor()), SCHEDULE), straight)
        assert toy.same(toy.global_generators(), before)

    def test_another_seed_differs(self, method: Method[Any], three: Federation) -> None:
        one, other = (method.round(method.init(each), [3], 1, each)[0] for each in (three, toy.again(three, seed=1)))
        assert not toy.same(personal(method, other, three), personal(method, one, three))

    def test_resume_equals_a_straight_run(
        self, method: Method[Any], fed: Federation, straight: Run, kept: Path, tmp_path: Path
    ) -> None:
        for t in (SCHEDULE.rounds - 1, SCHEDULE.rounds):
            file = tmp_path / f"{t}.ckpt"
            shutil.copy(kept / f"{t}.ckpt", file)
            watch, there = toy.Watch(), toy.again(fed)
            run = engine.run(method, there, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=watch.observer)
            assert_same_run(run, straight)
            assert watch.resumed == (t if t < SCHEDULE.rounds else None)
            assert watch.told == run.history
            assert run.history[:t] == straight.history[:t]  # with the seconds of the first run

    def test_checkpoint_holds_the_state_and_no_code(self, straight: Run, kept: Path) -> None:
        content = torch.load(kept / f"{SCHEDULE.rounds}.ckpt", weights_only=True)
        assert toy.same(content["state"], entries(straight.state))
        assert len(content["history"]) == SCHEDULE.rounds

    def test_round_leaves_its_arguments_as_they_were(self, method: Method[Any], three: Federation) -> None:
        state, cohort = method.init(three), [toy.IDS[0], toy.IDS[2]]
        for t in (1, 2):
            before = copy.deepcopy(state)
            after, _ = method.round(state, cohort, t, three)
            assert toy.same(state, before)
            assert cohort == [toy.IDS[0], toy.IDS[2]]
            before, state = state, after
        again, _ = method.round(before, cohort, 2, three)
        assert toy.same(after, again)  # nothing is remembered outside the state

    def test_reports_exactly_the_cohort_and_what_its_class_exchanges(
        self, method: Method[Any], fed: Federation
    ) -> None:
        for cohort in (list(toy.IDS[1:2]), list(toy.IDS)):
            _, report = method.round(method.init(fed), list(cohort), 1, fed)
            assert list(report.traffic) == cohort
            assert all(isinstance(traffic, Traffic) for traffic in report.traffic.values())
            assert all(getattr(traffic, ledger) >= 0 for traffic in report.traffic.values() for ledger in LEDGERS)
            assert set(report.after_local) == set(cohort)
        found = {kind for kind in vars(Traffic()) for traffic in report.traffic.values() if getattr(traffic, kind)}
        assert {kind.rpartition("_")[0] for kind in found} - {"public"} == method.exchanges

    def test_an_absent_client_is_left_alone(self, method: Method[Any], fed: Federation) -> None:
        everyone = list(toy.IDS)
        cohort, absent = [7, 20], [3, 11, 12]
        before, _ = method.round(method.init(fed), everyone, 1, fed)
        after, _ = method.round(before, cohort, 2, fed)
        found = []
        for field, old in entries(before).items():
            new = entries(after)[field]
            if isinstance(old, dict) and set(old) == set(everyone):  # by client: models with their buffers
                found.append(field)
                assert all(toy.same(old[n], new[n]) for n in absent), field
                assert not any(toy.same(old[n], new[n]) for n in cohort), field
            if isinstance(old, Tensor) and old.shape[:1] == (5,):  # the server's, a row for each client
                rows = fed.positions(absent)
                assert torch.equal(old[rows], new[rows]), field
                if old.shape == (5, 5) and field not in OF_STORED_MODELS:
                    assert torch.equal(old[:, rows], new[:, rows]), field
        if type(method).personal is Personal.personal:  # of others, a part of what a client uses is everybody's
            assert found
            assert toy.same(method.personal(before, absent, fed), method.personal(after, absent, fed))

    @pytest.mark.parametrize("name", REPRESENTATIVES, indirect=True)
    def test_workers_change_nothing(self, method: Method[Any], fed: Federation, straight: Run) -> None:
        """Cohorts of 3 of 5 clients: more than workers."""
        with closing(WorkersExecutor(2)) as executor:
            assert_same_run(engine.run(method, toy.again(fed, executor=executor), SCHEDULE), straight)

    def test_stacked_clients_change_nothing_but_the_rounding(self, method: Method[Any]) -> None:
        """3 clients of one architecture, with BatchNorm and without dropout, two to a stack."""
        found = []
        for executor in (SerialExecutor(), StackedExecutor(2)):
            fed = toy.alike("conv", clients=3, dtype="float64", executor=executor, training=TRAINING)
            run = engine.run(method, fed, Schedule(rounds=2, evaluate_every=2))
            found.append((personal(method, run.state, fed), run))
        (serial, one), (stacked, other) = found
        assert toy.distance(serial, stacked) < 1e-12
        for record, counterpart in zip(one.history, other.history, strict=True):
            assert counterpart.accuracy == record.accuracy
            assert counterpart.traffic == record.traffic
            assert counterpart.loss.keys() == record.loss.keys()
            for phase, losses in record.loss.items():
                assert counterpart.loss[phase] == pytest.approx(losses, rel=1e-10)

    def test_relabelling_permutes_everything(self, method: Method[Any]) -> None:
        order = (2, 0, 1)  # not its own inverse
        # Sums over clients run in another order: float64, and the rounding of two rounds.
        fed = toy.federation_for(method, clients=3, dtype="float64", training=TRAINING)
        permuted = toy.again(fed, clients=tuple(fed.clients[row] for row in order))
        one, other = (engine.run(method, these, Schedule(rounds=2, evaluate_every=2)) for these in (fed, permuted))
        models = personal(method, one.state, fed)
        assert toy.distance(models, personal(method, other.state, permuted)) < 1e-12
        assert toy.distance(models, personal(method, method.init(fed), fed)) > 1e-3
        for record, counterpart in zip(one.history, other.history, strict=True):
            assert counterpart.cohort == [record.cohort[row] for row in order]
            for point, values in record.accuracy.items():
                assert counterpart.accuracy[point] == [values[row] for row in order]
        if one.coefficients is not None:
            there_and_back = one.coefficients[:, list(order)][:, :, list(order)]
            assert torch.allclose(other.coefficients, there_and_back, rtol=0, atol=1e-7)  # kept as float32

    def test_history_has_its_documented_lengths(self, straight: Run) -> None:
        assert [record.round for record in straight.history] == [1, 2, 3]
        for record in straight.history:
            assert len(record.cohort) == 3
            assert set(record.accuracy) == {"after_local", "after_transfer", "validation"}
            for values in record.accuracy.values():
                assert len(values) == 5
                assert all(0 <= value <= 1 for value in values)
            for phase, losses in record.loss.items():
                assert (
                    len(losses) == 5 if phase == "test" else 1 <= len(losses) <= 3
                )  # one a member, or one a prototype
                assert all(math.isfinite(loss) for loss in losses)
            assert set(record.traffic) == set(LEDGERS)
            assert all(len(values) == 3 for values in record.traffic.values())
            assert record.seconds["round"] >= record.seconds["server"] >= 0
        if straight.coefficients is not None:
            assert straight.coefficients.shape == (3, 5, 5)
            assert straight.coefficients.dtype == torch.float32

    def test_an_unknown_hyperparameter_is_refused(self, name: str) -> None:
        with pytest.raises(InputError, match=f"hyperparameter of {name} 'nonsense' is unknown"):
            create(name, {"nonsense": 1})
        for entry in fields(METHODS[name].kind):
            with pytest.raises(InputError, match=f"did you mean '{entry.name}'"):
                create(name, {entry.name + "x": 1})

    def test_divergence_names_client_and_round(self, method: Method[Any], three: Federation, tmp_path: Path) -> None:
        wild = toy.again(three, training=LocalTraining(epochs=3, batch_size=4, learning_rate=1e38))
        file = tmp_path / "run.ckpt"
        with pytest.raises(InputError, match=r"Client (3|7|11) diverged in round 1 .*learning_rate"):
            engine.run(method, wild, Schedule(rounds=2), checkpoint_file=file)
        assert not file.exists()

    def test_a_client_that_diverges_and_is_skipped_was_not_sampled(
        self, method: Method[Any], three: Federation
    ) -> None:
        broken = toy.again(three, on_divergence="skip", executor=toy.Diverging(11))
        run = engine.run(method, broken, Schedule(rounds=1))
        others, _ = method.round(method.init(three), [3, 7], 1, toy.again(three))
        assert toy.same(run.state, others)
        assert (run.history[0].cohort, run.history[0].diverged) == ([3, 7], [11])

    def test_a_client_that_diverges_and_is_restored_breaks_nothing(
        self, method: Method[Any], three: Federation
    ) -> None:
        broken = toy.again(three, on_divergence="restore", executor=toy.Diverging(11))
        run = engine.run(method, broken, Schedule(rounds=2))
        assert toy.finite(run.state)
        assert [(record.cohort, record.diverged) for record in run.history] == [(list(toy.IDS[:3]), [11])] * 2
        assert all(len(record.loss["train"]) == 2 for record in run.history)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'kt_pfl'"):
        create("kt_pfll")
    with pytest.raises(InputError, match=r"choose from .*fedmd"):
        create("zzz")
