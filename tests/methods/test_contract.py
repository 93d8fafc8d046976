"""The contract of every method. A method joins by its line in `METHODS`; nothing here knows one by name."""

from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, get_type_hints

import pytest
import torch
import toy
from alignment import MovingExecutor, PickyProcessor

from ktpfl_pipeline.check import methods as contract
from ktpfl_pipeline.check.methods import Round
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Run, Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods import METHODS, create

# What a method needs to show itself in three rounds on toy data, where its defaults are made for longer runs.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    **{name: {"common": "linear"} for name in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl")},
    "feddbe": {"weight": 1.0},
    **{name: {"steps": 5} for name in ("fedgh", "fedgen")},  # of the server, on what it trains
    "fedtgp": {"steps": 5, "prediction": "head"},  # a few of its steps make no prototypes yet to classify by
    "fedre": {"rate": 0.1, "epochs": 20},
}

# A method's own local training is what its round does with everything off that pulls toward what others sent, with one
# step per mini-batch for as many epochs as other methods have.
OWN_TRAINING: dict[str, dict[str, Any]] = {
    **{name: {"weight": 0.0} for name in ("fedproto", "fedtgp", "fd", "fedgen", "feddbe", "fedcp", "gpfl")},
    **{name: {"coupling": 0.0} for name in ("ditto", "fedamp", "heur_fedamp", "fedprox")},
    "fml": {"alpha": 1.0},
    "fedapen": {"mutual": 0.0},
    **{name: {"divergence_weight": 0.0, "feature_weight": 0.0} for name in ("fedkd", "fedkd_summed")},
    "pfedgraph": {"pull": 0.0},
    "pfedhn": {"rate": 0.0},  # else the server steps after each client
    "pfedme": {"coupling": 0.0, "inner_steps": 1},
    "local_matched": {"work": 1.0, "public": False},
    "local_5x": {"work": 1.0},
}

# Methods whose rounds train in steps that no such settings make equal, for the reason given. They are adapted by plain
# local training of the model that the client uses.
TRAINED_OTHERWISE = {
    "per_fedavg": "its meta-step is of the model before adaptation",
    "per_fedavg_hf": "its meta-step is of the model before adaptation",
    "fedbabu": "its head moves in fine-tuning only, as its paper says",
    "fedrep": "head and body take turns",
    "fedpac": "head and body take turns",
    "apple": "the state keeps the mixed model, not all cores that it was mixed of",
}

# Rounds after which a method has learned whose first rounds teach little.
SLOW = {"pfedhn": 8, "fccl_plus": 5, "fedre": 10, "fedproto": 6}

# The first method of each kind of state, and so of each way in which models are given to clients and taken back.
REPRESENTATIVES = list({get_type_hints(METHODS[name].kind.init)["return"]: name for name in reversed(METHODS)}.values())

# One method of each class, for what other hyperparameters of the same class cannot change.
CLASSES = list({METHODS[name].path: name for name in reversed(METHODS)}.values())

SCHEDULE = contract.SCHEDULE  # 3 of 5 clients a round
TWO_ROUNDS = Schedule(rounds=2, evaluate_every=2)
TRAINING = contract.TRAINING  # at which the run of three rounds has learned
LOW_RATE = {"pfedme": 0.1}  # its steps are many times as long


@pytest.fixture(scope="module", params=list(METHODS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def method(name: str) -> Method[Any]:
    return create(name, HYPERPARAMETERS.get(name))


@pytest.fixture(scope="module")
def training(name: str) -> LocalTraining:
    return replace(TRAINING, learning_rate=LOW_RATE.get(name, TRAINING.learning_rate))


@pytest.fixture
def fed(method: Method[Any], training: LocalTraining) -> Federation:
    return toy.federation_for(method, training=training)


@pytest.fixture
def three(method: Method[Any], training: LocalTraining) -> Federation:
    """Three clients, where more of them show nothing more."""
    return toy.federation_for(method, clients=3, training=training)


@pytest.fixture(scope="module")
def kept(method: Method[Any], name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the checkpoints after each round of the straight run."""
    return tmp_path_factory.mktemp(name)


@pytest.fixture(scope="module")
def rounds() -> list[Round]:
    """The rounds of the straight run, which fills the list."""
    return []


@pytest.fixture(scope="module")
def straight(method: Method[Any], training: LocalTraining, kept: Path, rounds: list[Round]) -> Run:
    """One undisturbed run, its checkpoint after round t kept as ``t.ckpt``; what most tests look at."""
    run, rounds[:] = recorded(method, training, kept)
    return run


def recorded(method: Method[Any], training: LocalTraining, kept: Path) -> tuple[Run, list[Round]]:
    """Return an undisturbed run and its rounds; checkpoints go to the folder `kept`."""
    found = contract.Recorded(method, kept, training, toy.federation_for)
    return found.run(), found.rounds


@pytest.fixture
def exact(method: Method[Any], training: LocalTraining) -> Federation:
    """Three clients in float64, where other orders of sums show as rounding alone; two are alike, without dropout."""
    return toy.federation_for(
        method, clients=3, architectures=("conv", "linear"), one="conv", dtype="float64", training=training
    )


@cache
def untrained(one_architecture: bool) -> float:
    """Return the mean accuracy on test images of models as they are drawn."""
    fed = toy.federation(architectures=("both",) if one_architecture else toy.ARCHITECTURES)
    return fmean(evaluation.accuracy for evaluation in fed.evaluate(fed.initial_models(), "test").values())


def assert_same_run(one: Run, other: Run) -> None:
    assert toy.same(contract.timeless(one), contract.timeless(other))


def resumed(method: Method[Any], fed: Federation, kept: Path, t: int, folder: Path, observer: Any = toy.SILENT) -> Run:
    """Go on from the straight run's checkpoint of round t."""
    return contract.Recorded(method, kept).resumed(fed, t, folder / f"{t}.ckpt", observer)


def personal(method: Method[Any], state: Any, fed: Federation) -> Models:
    return method.personal(state, [client.id for client in fed.clients], fed)


def first_round(method: Method[Any], fed: Federation) -> tuple[Any, ...]:
    """Return the state and the trained models of the first round, and the evaluation of the personal ones."""
    state, report = method.round(method.init(fed), list(fed.by_id), 1, fed)
    return state, report.after_local, fed.evaluate(personal(method, state, fed), "test")


def reordered(values: list[Any], order: tuple[int, ...]) -> list[Any]:
    """Return what belongs to clients in another order of theirs, and what belongs to prototypes as it is."""
    return [values[row] for row in order] if len(values) == len(order) else values


class TestContract:
    def test_learns_and_keeps_a_history_and_a_checkpoint(
        self, name: str, method: Method[Any], three: Federation, straight: Run, kept: Path
    ) -> None:
        """A history of its documented lengths, and a checkpoint that holds the state and no code."""
        assert untrained(method.one_architecture) < 0.5
        run = engine.run(method, three, Schedule(SLOW[name], evaluate_every=SLOW[name])) if name in SLOW else straight
        after = run.history[-1].accuracy["after_transfer"]
        assert fmean(after) > 0.75
        assert min(after) > 1 / toy.CLASSES
        assert [record.round for record in straight.history] == [1, 2, 3]
        contract.keeps_a_history(straight.history)
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
            assert all(len(values) == 3 for values in record.traffic.values())
            assert record.seconds["round"] >= record.seconds["server"] >= 0
        if straight.coefficients is not None:
            assert straight.coefficients.shape == (3, 5, 5)
            assert straight.coefficients.dtype == torch.float32
        content = torch.load(kept / f"{SCHEDULE.rounds}.ckpt", weights_only=True)
        assert toy.same(content["state"], contract.entries(straight.state))
        assert len(content["history"]) == SCHEDULE.rounds

    def test_repeats_bit_for_bit_in_any_order_of_visits(
        self, method: Method[Any], fed: Federation, straight: Run, rounds: list[Round], kept: Path, tmp_path: Path
    ) -> None:
        """A resumed run equals a straight one, and one that was finished is taken as it is.

        From the first round's end on, to which the method goes back after its last round, so that it remembers nothing
        outside the state.
        """
        torch.manual_seed(99)  # which no draw may depend on, and none may move
        before, watch = toy.global_generators(), toy.Watch()
        backwards = toy.again(fed, executor=toy.ReverseExecutor())
        assert toy.same(method.init(backwards), rounds[0].before)
        run = resumed(method, backwards, kept, 1, tmp_path, watch.observer)
        assert_same_run(run, straight)
        assert (watch.resumed, watch.told) == (1, run.history)
        assert run.history[:1] == straight.history[:1]  # with the seconds of the first run
        assert toy.same(toy.global_generators(), before)
        watch = toy.Watch()
        finished = resumed(method, fed, kept, SCHEDULE.rounds, tmp_path, watch.observer)
        assert_same_run(finished, straight)
        assert (watch.resumed, watch.told) == (None, finished.history)

    def test_another_seed_differs_and_a_cohort_may_be_one_client(self, method: Method[Any], three: Federation) -> None:
        (one, report), (other, _) = (
            method.round(method.init(each), [3], 1, each) for each in (three, toy.again(three, seed=1))
        )
        assert not toy.same(personal(method, other, three), personal(method, one, three))
        assert list(report.traffic) == list(report.after_local) == [3]

    def test_a_round_depends_only_on_its_cohort(
        self, method: Method[Any], fed: Federation, straight: Run, rounds: list[Round]
    ) -> None:
        """It leaves its arguments as they were, and absent clients, and reports exactly what its class exchanges."""
        assert [each.t for each in rounds] == [1, 2, 3]
        contract.leaves_its_arguments(rounds)
        contract.reports_what_it_exchanges(method, rounds)
        there = {n for each in rounds for n in each.cohort}
        assert there - set(rounds[-1].cohort), "absent in the last round, and there before it"
        assert set(rounds[-1].cohort) & {n for each in rounds[:-1] for n in each.cohort}
        contract.leaves_absent_clients(method, rounds, fed)

    @pytest.mark.parametrize("name", REPRESENTATIVES, indirect=True)
    def test_workers_change_nothing(
        self, method: Method[Any], fed: Federation, straight: Run, kept: Path, tmp_path: Path
    ) -> None:
        """A round after others: 3 of 5 clients, more than workers."""
        with closing(ProcessesExecutor(2)) as executor:
            assert_same_run(resumed(method, toy.again(fed, executor=executor), kept, 2, tmp_path), straight)

    @pytest.mark.parametrize("name", CLASSES, indirect=True)
    def test_the_place_of_tensors_in_memory_changes_nothing(self, method: Method[Any], three: Federation) -> None:
        """On an emulated processor, so that every machine shows the fault: see `alignment`."""
        with PickyProcessor():
            moved = first_round(method, toy.again(three, executor=MovingExecutor(offset=1)))
            assert toy.same(moved, first_round(method, three))

    @pytest.mark.parametrize("name", CLASSES, indirect=True)
    def test_clients_in_another_order_change_nothing_but_the_rounding(
        self, method: Method[Any], exact: Federation
    ) -> None:
        """With BatchNorm and without dropout; sums over clients run in another order."""
        order = (2, 0, 1)  # not its own inverse
        permuted = toy.again(exact, clients=tuple(exact.clients[row] for row in order))
        serial, other = (engine.run(method, each, TWO_ROUNDS) for each in (exact, permuted))
        models = personal(method, serial.state, exact)
        assert toy.distance(models, personal(method, other.state, permuted)) < 1e-12
        assert toy.distance(models, personal(method, method.init(exact), exact)) > 1e-3
        for record, counterpart in zip(serial.history, other.history, strict=True):
            assert counterpart.cohort == reordered(record.cohort, order)
            for mine, its in ((record.accuracy, counterpart.accuracy), (record.traffic, counterpart.traffic)):
                assert its == {what: reordered(values, order) for what, values in mine.items()}
            assert counterpart.loss.keys() == record.loss.keys()
            for phase, losses in record.loss.items():
                assert counterpart.loss[phase] == pytest.approx(reordered(losses, order), rel=1e-10), phase
        if serial.coefficients is not None:
            there_and_back = serial.coefficients[:, list(order)][:, :, list(order)]
            assert torch.allclose(other.coefficients, there_and_back, rtol=0, atol=1e-7)  # kept as float32

    def test_adaptation_is_the_methods_own_local_training(
        self, name: str, training: LocalTraining, straight: Run, method: Method[Any]
    ) -> None:
        """From the same start, by as many epochs: `adapt` is E epochs of a round's local training, on its shuffles.

        In the first round, in which every method starts its local training from what `untuned` returns, called round 0,
        whose shuffles adaptation has. Later adaptation starts from the model that the client uses now.
        """
        own = create(name, {**HYPERPARAMETERS.get(name, {}), **OWN_TRAINING.get(name, {})})
        fed = toy.federation_for(own, clients=3, dtype="float64", training=replace(training, epochs=2))
        ids = list(fed.by_id)
        state = own.init(fed)
        start = own.untuned(state, own.personal(state, ids, fed), fed)
        if name in TRAINED_OTHERWISE:
            expected = fed.train(start, 0)
        else:
            expected = own.round(state, ids, 0, toy.again(fed))[1].after_local
        adapted = own.adapt(state, start, 2, fed)
        assert toy.distance(adapted, expected) < 1e-12
        assert toy.distance(adapted, start) > 1e-3
        everyone = toy.federation_for(method, training=training)
        now = method.untuned(straight.state, personal(method, straight.state, everyone), everyone)
        assert toy.distance(method.adapt(straight.state, now, 0, everyone), now) < 1e-6

    def test_divergence_names_client_and_round(self, method: Method[Any], three: Federation, tmp_path: Path) -> None:
        wild = toy.again(three, training=LocalTraining(epochs=1, batch_size=4, learning_rate=1e30))
        file = tmp_path / "run.ckpt"
        with pytest.raises(InputError, match=r"Client (3|7|11) diverged in round 1 .*learning_rate"):
            engine.run(method, wild, Schedule(rounds=2), checkpoint_file=file)
        assert not file.exists()

    @pytest.mark.parametrize("name", REPRESENTATIVES, indirect=True)
    def test_a_client_that_diverges_and_is_skipped_was_not_sampled(
        self, method: Method[Any], three: Federation
    ) -> None:
        broken = toy.again(three, on_divergence="skip", executor=toy.Diverging(11))
        run = engine.run(method, broken, Schedule(rounds=1))
        others, _ = method.round(method.init(three), [3, 7], 1, toy.again(three))
        assert toy.same(run.state, others)
        assert (run.history[0].cohort, run.history[0].diverged) == ([3, 7], [11])

    @pytest.mark.parametrize("name", REPRESENTATIVES, indirect=True)
    def test_a_client_that_diverges_and_is_restored_breaks_nothing(
        self, method: Method[Any], three: Federation
    ) -> None:
        broken = toy.again(three, on_divergence="restore", executor=toy.Diverging(11))
        run = engine.run(method, broken, TWO_ROUNDS)
        assert toy.finite(run.state)
        assert [(record.cohort, record.diverged) for record in run.history] == [(list(toy.IDS[:3]), [11])] * 2
        assert all(len(record.loss["train"]) == 2 for record in run.history)
