"""A Ray cluster of two workers on this machine: the serial result, whatever happens to them."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine, executors
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.engine import Observer, Run, Schedule
from ktpfl_pipeline.core.errors import InputError, LostError
from ktpfl_pipeline.core.executors import cluster, ray_session
from ktpfl_pipeline.core.executors.base import Executor
from ktpfl_pipeline.core.executors.cluster import ClusterExecutor, RemoteParams
from ktpfl_pipeline.core.executors.ray_session import FOLDER, clear_dead
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import ClientStates, Federation
from ktpfl_pipeline.core.machine.files import HOST
from ktpfl_pipeline.core.recipe import RateSchedule
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import (
    Budgets,
    Compute,
    Distillation,
    ExecutorSettings,
    LocalTraining,
    Ray,
    Reliability,
)
from ktpfl_pipeline.core.weights import opened, wire_bytes
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.kt_pfl import KTpFL

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'")

SCHEDULE = Schedule(rounds=3, participation=0.6)  # 3 of 5 clients a round
SETTINGS = {"what": "toy"}
GPU = torch.device("cuda")
CPUS = 5  # of the cluster: two for `executor`, one for `whole`, two for `halves`
HYPERPARAMETERS: dict[str, dict[str, Any]] = {"fml": {"common": "linear"}}


def double(space: Any, n: int, value: int) -> Outcome[int]:
    return Outcome(2 * value, loss=torch.tensor(float(n)))


def process(space: Any, n: int) -> Outcome[int]:
    return Outcome(os.getpid())


def niceness(space: Any, n: int) -> Outcome[int]:
    return Outcome(os.nice(0))


def assigned(space: Any, n: int) -> Outcome[str]:
    return Outcome(os.environ["CUDA_VISIBLE_DEVICES"])


def known(space: Any, n: int) -> Outcome[tuple[int, ...]]:
    return Outcome(tuple(space.setting.by_id))


def refuse(space: Any, n: int) -> Outcome[None]:
    raise InputError(f"client {n} has no images: give it some.")


def die_once(space: Any, n: int, *arguments: Any, operation: Any, trace: str) -> Outcome[Any]:
    """End the process that is first to work for the second client; else do what `operation` does."""
    if n == toy.IDS[1]:
        try:
            os.close(os.open(trace, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return operation(space, n, *arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return operation(space, n, *arguments)


def die(space: Any, n: int) -> Outcome[None]:
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(None)


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[None]:
    """Start Ray once, with two GPUs that no machine needs to have: Ray only counts them.

    Executors find Ray and leave it as it is. What is written here travels by value.
    """
    with patch.object(torch.cuda, "device_count", lambda: 2):
        session = ray_session.Session(Ray(workers=CPUS))
    from ray import cloudpickle

    for module in (toy, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (toy, sys.modules[__name__]):
        cloudpickle.unregister_pickle_by_value(module)
    session.end()


@pytest.fixture(scope="module")
def executor(started: None) -> Iterator[ClusterExecutor]:
    """Two workers that go from test to test, as they go from federation to federation."""
    made = ClusterExecutor(Ray(workers=2))
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(started: None) -> Iterator[ClusterExecutor]:
    """One worker with a GPU."""
    made = ClusterExecutor(Ray(workers=1), GPU)
    yield made
    made.close()


@pytest.fixture(scope="module")
def halves(started: None) -> Iterator[ClusterExecutor]:
    """Two workers with half a GPU each."""
    made = ClusterExecutor(Ray(workers=2), GPU)
    made.gpus = 0.5
    yield made
    made.close()


@pytest.fixture
def fed(executor: ClusterExecutor) -> Federation:
    return toy.federation(executor=executor)


def run(fed: Federation, operation: Any, *arguments: Any) -> dict[int, Any]:
    return fed.run("phase", operation, dict.fromkeys(toy.IDS, arguments))


def forget(handles: list[RemoteParams]) -> None:
    """Let Ray answer with an error when it is asked for models, as it does when their machine is gone."""
    import ray

    gone = ray.remote(num_cpus=0)(nothing).remote()
    for handle in handles:
        handle._given = (gone, *handle._given[1:])


def nothing() -> None:
    raise LookupError


def assert_same_run(one: Run, other: Run) -> None:
    assert toy.same(*([replace(record, seconds={}) for record in each.history] for each in (one, other)))
    assert toy.same(one.coefficients, other.coefficients)
    assert toy.same(one.state, other.state)


@pytest.fixture(scope="module")
def serial() -> Run:
    return engine.run(KTpFL(), toy.federation(), SCHEDULE)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the server has brought to itself."""
    seen: list[Any] = []
    usual = cluster.fetch
    monkeypatch.setattr(cluster, "fetch", lambda models: seen.append(models) or usual(models))
    return seen


class TestSameResult:
    @pytest.mark.parametrize("name", ["feddf", "fml", "fedkd", "fedproto", "fedavg_ft", "apple", "pfedhn"])
    def test_for_every_shape_of_state(self, executor: ClusterExecutor, name: str) -> None:
        """Cohorts of 3 of 5 clients, on two workers."""
        method = create(name, HYPERPARAMETERS.get(name))
        fed = toy.federation_for(method)
        schedule = Schedule(rounds=2, participation=0.6, evaluate_every=2)
        expected = engine.run(method, fed, schedule)
        assert_same_run(engine.run(method, toy.again(fed, executor=executor), schedule), expected)

    @pytest.mark.parametrize("participation", [0.2, 1.0], ids=["one", "all"])
    def test_for_any_cohort(self, fed: Federation, participation: float) -> None:
        schedule = Schedule(rounds=2, participation=participation)
        assert_same_run(engine.run(KTpFL(), fed, schedule), engine.run(KTpFL(), toy.again(fed), schedule))

    @pytest.mark.parametrize("name", sorted(toy.ARITHMETICS.keys() - {"bfloat16"}))
    def test_whatever_the_arithmetic(self, executor: ClusterExecutor, name: str) -> None:
        """Without bfloat16, which actors refuse on processors that lack its instructions."""
        compute = toy.ARITHMETICS[name]
        feds = [toy.federation(executor=each, compute=compute) for each in (executor, SerialExecutor())]
        states = [engine.run(KTpFL(), fed, Schedule(rounds=1)).state for fed in feds]
        assert toy.same(*states)

    def test_where_clients_have_budgets(self, executor: ClusterExecutor) -> None:
        """Which clients do is drawn from all of them, not from those of a worker."""
        fed = toy.federation(
            training=LocalTraining(epochs=4, batch_size=8, learning_rate=0.05),
            reliability=Reliability(budgets=Budgets(share=0.4, epochs=0.25)),
        )
        expected = engine.run(KTpFL(), fed, Schedule(rounds=1))
        assert_same_run(engine.run(KTpFL(), toy.again(fed, executor=executor), Schedule(rounds=1)), expected)

    def test_for_the_richest_recipe(self, executor: ClusterExecutor) -> None:
        """Optimizer state stays with the workers, as models do, and crosses rounds."""
        recipe: dict[str, Any] = {"optimizer": "adamw", "optimizer_state": "kept", "weight_decay": 0.01, "clip": 1.0}
        recipe["schedule"] = RateSchedule("cosine", warm_up=1)
        training = LocalTraining(1, 8, 0.02, label_smoothing=0.1, **recipe)
        fed = toy.federation(rounds=3, training=training, distillation=Distillation(1, 8, 0.02, **recipe))
        expected = engine.run(KTpFL(), fed, SCHEDULE)
        remote = toy.again(fed, executor=executor, client_states=ClientStates())
        assert_same_run(engine.run(KTpFL(), remote, SCHEDULE), expected)
        assert all(isinstance(state, RemoteParams) for state in remote.client_states.kept["distill"].values())
        assert toy.same(opened(remote.client_states.kept), fed.client_states.kept)

    @pytest.mark.parametrize("policy", ["skip", "restore"])
    def test_where_a_client_diverges(self, executor: ClusterExecutor, policy: Any) -> None:
        """Client 11 does, in the second round and the third."""
        fed = toy.federation(architectures=("linear", "mlp", "unlucky"), on_divergence=policy)
        expected = engine.run(KTpFL(), fed, Schedule(rounds=3))
        assert [record.diverged for record in expected.history] == [[], [11], [11]]
        assert_same_run(engine.run(KTpFL(), toy.again(fed, executor=executor), Schedule(rounds=3)), expected)

    def test_values_losses_and_progress(self, executor: ClusterExecutor) -> None:
        told, found = [], []
        for each in (executor, SerialExecutor()):
            fed = toy.federation(executor=each)
            calls = {n: (place,) for place, n in enumerate(toy.IDS)}
            result = each.run(fed, "phase", double, calls, lambda *what: told.append(what))
            found.append((list(result.values.items()), list(result.losses.items()), result.diverged))
        assert found[0] == found[1]
        assert told[:5] == told[5:]


class TestWhereThingsAre:
    def test_clients_are_side_by_side_and_stay_where_they_are(self, fed: Federation) -> None:
        found = run(fed, process)
        assert len(set(found.values())) == 2
        assert os.getpid() not in found.values()
        assert run(fed, process) == found

    def test_workers_have_the_priority_of_the_run(self, fed: Federation) -> None:
        assert set(run(fed, niceness).values()) == {os.nice(0)}

    def test_a_worker_knows_its_own_clients_alone(self, fed: Federation) -> None:
        found = run(fed, known)
        assert all(n in mine for n, mine in found.items())
        assert sorted(n for mine in set(found.values()) for n in mine) == sorted(toy.IDS)

    def test_the_largest_clients_are_apart(self) -> None:
        fed = toy.alike()  # 20, 17, 16, 14 and 9 images
        assert cluster.share_out(fed, 2) == {11: 0, 7: 1, 3: 1, 20: 0, 12: 1}

    def test_models_do_not_travel_where_knowledge_does(self, fed: Federation, fetched: list[Any], serial: Run) -> None:
        """KT-pFL's rounds bring no model to the server; the end of the run does, once each."""
        before: list[int] = []
        found = engine.run(KTpFL(), fed, SCHEDULE, observer=Observer(round=lambda _: before.append(len(fetched))))
        assert before == [0, 0, 0]
        trained = {n for record in found.history for n in record.cohort}
        assert len(fetched) == len(trained)
        assert_same_run(found, serial)

    def test_a_model_is_a_handle_until_it_is_looked_at(self, fed: Federation, fetched: list[Any]) -> None:
        models = fed.train(fed.initial_models(), 1)
        expected = toy.again(fed).train(fed.initial_models(), 1)
        assert all(isinstance(params, RemoteParams) for params in models.values())
        assert {n: wire_bytes(params) for n, params in models.items()} == {
            n: wire_bytes(params) for n, params in expected.items()
        }
        assert fetched == []
        n = toy.IDS[0]
        assert all(models[n][name] is models[n][name] for name in models[n])
        assert toy.same({**models[n]}, {**expected[n]})
        assert len(fetched) == 1

    def test_another_federation_is_sent_to_the_same_workers(self, executor: ClusterExecutor, fed: Federation) -> None:
        before = set(run(fed, process).values())
        other = toy.federation(3, executor=executor)
        assert set(executor.run(other, "phase", process, dict.fromkeys(toy.IDS[:3], ())).values.values()) == before

    def test_handles_outlive_no_session(self, fed: Federation) -> None:
        handle = next(iter(fed.train(fed.initial_models(), 1).values()))
        assert isinstance(handle, RemoteParams)
        handle._session = SimpleNamespace(alive=False)  # type: ignore[assignment]
        with pytest.raises(LostError, match="left since"):
            handle.open()


class TestLoss:
    def test_a_worker_that_dies_in_a_call_is_replaced(
        self, fed: Federation, serial: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = fed.executor.outcomes
        died = tmp_path / "trace"

        def deadly(setting: Setting, phase: str, operation: Any, calls: Any, progress: Any) -> Any:
            if phase == "distill":  # of models that the dead worker has made
                operation = partial(die_once, operation=operation, trace=str(died))
            return usual(setting, phase, operation, calls, progress)

        monkeypatch.setattr(fed.executor, "outcomes", deadly)
        assert_same_run(engine.run(KTpFL(), fed, SCHEDULE), serial)
        assert died.exists()

    def test_a_worker_that_has_died_since_another_federation(self, executor: ClusterExecutor, fed: Federation) -> None:
        os.kill(run(fed, process)[toy.IDS[0]], signal.SIGKILL)
        assert run(toy.federation(executor=executor), double, 4) == dict.fromkeys(toy.IDS, 8)

    @pytest.mark.parametrize("kept", [True, False], ids=["checkpoint", "no checkpoint"])
    def test_models_that_are_gone_are_made_again(
        self, fed: Federation, serial: Run, tmp_path: Path, kept: bool
    ) -> None:
        """In the third round the trained models go, as with their machine; each round is told once."""
        watch, gone = toy.Watch(), []

        def lose(phase: str, done: int, total: int) -> None:
            if phase == "predict" and len(watch.told) == 2 and not gone:
                gone.extend(handle for handle in gc.get_objects() if isinstance(handle, RemoteParams))
                forget(gone)

        observer = Observer(progress=lose, round=watch.observer.round)
        file = tmp_path / "run.ckpt" if kept else None
        found = engine.run(KTpFL(), fed, SCHEDULE, settings=SETTINGS, checkpoint_file=file, observer=observer)
        assert gone
        assert_same_run(found, serial)
        assert [record.round for record in watch.told] == [1, 2, 3]

    def test_a_handle_on_what_is_gone_says_so(self, fed: Federation) -> None:
        models = fed.train(fed.initial_models(), 1)
        lost = models[toy.IDS[0]]
        assert isinstance(lost, RemoteParams)
        forget([lost])
        with pytest.raises(LostError, match="lost with the machine"):
            lost.open()
        with pytest.raises(LostError, match="lost with the machine"):
            fed.train(models, 2)
        assert len(fed.train(fed.initial_models(), 2)) == 5


def created(settings: Ray, device: str = "cpu", threads: int = 1) -> Executor:
    return executors.create(Compute(device, threads=threads, executor=ExecutorSettings(ray=settings)))


class TestChoice:
    def test_the_cluster_that_is_named(self) -> None:
        made = created(Ray("10.0.0.5:6379"))
        assert isinstance(made, ClusterExecutor)
        assert (made.settings.address, made.gpus) == ("10.0.0.5:6379", 0)

    @pytest.mark.parametrize(
        ("address", "threads", "device", "why"),
        [
            ("local", 2, "cpu", r"compute\.threads is 2; .* set compute\.threads to 1"),
            (
                "local",
                1,
                "cuda:1",
                r"is cuda:1; Ray assigns GPUs to workers: set compute\.device to cuda",
            ),
            ("lokal", 1, "cpu", r"; choose local, auto, or the head's host:port"),
            ("ray://head:10001", 1, "cpu", "start the run on one of its machines, with auto"),
        ],
    )
    def test_what_is_impossible(self, address: str, threads: int, device: str, why: str) -> None:
        with pytest.raises(InputError, match=rf"^compute\.executor has ray at '{address}'.*{why}"):
            created(Ray(address), device=device, threads=threads)

    def test_gpus_of_workers_on_a_cpu(self) -> None:
        with pytest.raises(InputError, match=r"with gpus_per_worker 0\.5, and compute\.device means a CPU"):
            created(Ray(gpus_per_worker=0.5))

    @pytest.mark.parametrize(
        ("given", "gpus"), [({}, 1), ({"gpus_per_worker": 0.25}, 0.25), ({"gpus_per_worker": 2}, 2)]
    )
    def test_a_worker_has_a_gpu_or_a_share_of_one(self, given: dict[str, Any], gpus: float) -> None:
        made = created(Ray(**given), device="cuda")
        assert isinstance(made, ClusterExecutor)
        assert made.gpus == gpus

    def test_workers_fit_on_the_gpus_of_a_cluster(self) -> None:
        found = [
            ray_session.per_gpu(gpus, there) for gpus, there in ((1, 4), (0.5, 4), (0.4, 2), (0.1, 1), (2, 5), (4, 2))
        ]
        assert found == [4, 8, 4, 10, 2, 0]


class TestGPUs:
    """Ray assigns the GPUs; what the workers compute, here on the CPU, is what the serial executor computes."""

    def test_two_halves_are_of_one_and_a_whole_one_is_another(
        self, whole: ClusterExecutor, halves: ClusterExecutor
    ) -> None:
        whole.close()  # whichever tests came before, one GPU is taken first and the other one is left
        halves.close()
        (one,) = set(run(toy.federation(executor=whole), assigned).values())
        fed = toy.federation(executor=halves)
        (other,) = set(run(fed, assigned).values())
        assert {one, other} == {"0", "1"}
        assert len(set(run(fed, process).values())) == 2

    def test_the_run_is_that_of_serial(self, halves: ClusterExecutor) -> None:
        fed = toy.federation(architectures=("linear", "mlp"))
        expected = engine.run(KTpFL(), fed, Schedule(rounds=2))
        assert_same_run(engine.run(KTpFL(), toy.again(fed, executor=halves), Schedule(rounds=2)), expected)

    @pytest.mark.parametrize(("gpus", "workers"), [(1.0, 2), (0.5, 4)])
    def test_auto_is_as_many_workers_as_the_gpus_carry(self, gpus: float, workers: int) -> None:
        assert ray_session.Session(Ray(), gpus).workers == workers

    def test_more_for_a_worker_than_the_cluster_has(self) -> None:
        with pytest.raises(InputError, match=r"has Ray workers with 3 GPUs each, and the cluster has 2 GPUs"):
            ray_session.Session(Ray(), 3)


class TestErrors:
    def test_that_cannot_travel_say_what_they_said(self) -> None:
        error = ValueError("odd")
        error.reason = (part for part in "why")  # type: ignore[attr-defined]
        assert isinstance(cluster._that_travels(error), RuntimeError)
        assert "ValueError: odd" in str(cluster._that_travels(error))

    def test_more_workers_than_the_cluster_has_cpus(self) -> None:
        executor = ClusterExecutor(Ray(workers=6))
        with pytest.raises(InputError, match=r"has 6 Ray workers, and the cluster has 5 CPUs; take auto"):
            executor.run(toy.federation(), "phase", double, {3: (1,)})

    def test_auto_is_one_worker_for_each_cpu(self) -> None:
        assert ray_session.Session(Ray()).workers == CPUS

    def test_come_through_as_they_were_raised(self, halves: ClusterExecutor) -> None:
        """All workers of an executor end with an error, and it takes seconds to start others."""
        fed = toy.federation(executor=halves)
        with pytest.raises(InputError) as raised:
            fed.run("phase", refuse, {toy.IDS[0]: ()})
        assert str(raised.value) == f"client {toy.IDS[0]} has no images: give it some."
        assert "in refuse" in raised.value.__notes__[0]  # where it was raised

    def test_a_call_that_kills_twice_ends_the_run_with_a_sentence(self, whole: ClusterExecutor) -> None:
        fed = toy.federation(1, executor=whole)
        with pytest.raises(InputError, match=r"Client \d+'s phase ended 2 workers of the cluster, .* memory"):
            fed.run("phase", die, {toy.IDS[0]: ()})


def test_closing_leaves_no_worker(executor: ClusterExecutor) -> None:
    """The last test of this file: others would have to start theirs."""
    fed = toy.federation(1, executor=executor)
    pids = set(fed.run("phase", process, {toy.IDS[0]: ()}).values())
    assert all(map(alive, pids))
    executor.close()
    end = time.monotonic() + 120  # beside other work Ray takes its time
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    """Say whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_folders_of_runs_that_were_killed_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of runs that go on or of another container with the same disk, nor what is nobody's."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    folders = [tmp_path / f"{FOLDER}{name}" for name in (f"{dead.pid}-a", f"{os.getpid()}-b", "other")]
    folders += [tmp_path / f"{FOLDER.replace(HOST, '0123abcd')}{dead.pid}-a", tmp_path / f"ktpfl-ray-{dead.pid}-a"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clear_dead()
    assert [folder.exists() for folder in folders] == [False, True, True, True, True]
