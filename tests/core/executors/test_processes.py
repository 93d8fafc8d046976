"""Worker processes: the serial result, whatever happens to them. That every method gets it is in the contract."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
import toy

from ktpfl_pipeline.core import engine, executors
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor, chosen
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.settings import Compute, ExecutorSettings
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.kt_pfl import KTpFL

HERE = False
"""Whether this is the process of the tests, or a fork of it."""

# Verbs travel by name, so they stand here.


def double(space: Any, n: int, value: int) -> Outcome[int]:
    return Outcome(2 * value, loss=torch.tensor(float(n)))


def process(space: Any, n: int) -> Outcome[int]:
    time.sleep(0.1)
    return Outcome(os.getpid())


def quick_or_slow(space: Any, n: int, seconds: dict[int, float]) -> Outcome[float]:
    begun = time.monotonic()
    time.sleep(seconds[n])
    return Outcome(begun)


def refuse(space: Any, n: int) -> Outcome[None]:
    if n == toy.IDS[1]:
        raise InputError(f"client {n} has no images: give it some.")
    return Outcome(None)


def raise_what_cannot_travel(space: Any, n: int) -> Outcome[None]:
    error = ValueError("odd")
    error.reason = lambda: None  # type: ignore[attr-defined]
    raise error


def answer_what_cannot_travel(space: Any, n: int) -> Outcome[Any]:
    return Outcome(lambda: n)


def die_once(space: Any, n: int, trace: str) -> Outcome[int]:
    """End the process that is first to work for the second client."""
    if n == toy.IDS[1]:
        try:
            os.close(os.open(trace, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return Outcome(n)
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(n)


def places(space: Any, n: int) -> Outcome[tuple[str, int, bool]]:
    return Outcome((space.setting.compute.device, os.getpid(), HERE))


def die(space: Any, n: int) -> Outcome[None]:
    os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(None)


@pytest.fixture
def executor() -> Iterator[ProcessesExecutor]:
    made = ProcessesExecutor(2)
    yield made
    made.close()


@pytest.fixture
def fed(executor: ProcessesExecutor) -> Federation:
    return toy.federation(executor=executor)


def alive(pid: int) -> bool:
    """Say whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(fed: Federation, operation: Any, *arguments: Any) -> dict[int, Any]:
    return fed.run("phase", operation, dict.fromkeys(toy.IDS, arguments))


class TestRun:
    def test_values_losses_and_progress_are_those_of_serial(self, fed: Federation) -> None:
        told: dict[type, list[tuple[str, int, int]]] = {}
        found = []
        for executor in (fed.executor, SerialExecutor()):
            seen = told.setdefault(type(executor), [])
            calls = {n: (place,) for place, n in enumerate(toy.IDS)}
            result = executor.run(fed, "phase", double, calls, lambda *what, seen=seen: seen.append(what))
            found.append((list(result.values.items()), list(result.losses.items()), result.diverged))
        assert found[0] == found[1]
        assert told[ProcessesExecutor] == told[SerialExecutor]

    @pytest.mark.parametrize("compute", toy.ARITHMETICS.values(), ids=toy.ARITHMETICS)
    def test_whatever_the_arithmetic(self, executor: ProcessesExecutor, compute: Compute) -> None:
        feds = [toy.federation(executor=each, compute=compute) for each in (executor, SerialExecutor())]
        states = [engine.run(KTpFL(), fed, Schedule(rounds=1)).state for fed in feds]
        assert toy.same(*states)

    def test_clients_are_side_by_side_in_the_same_workers_and_another_federation_gets_others(
        self, fed: Federation
    ) -> None:
        before = set(run(fed, process).values())
        assert len(before) == 2
        assert os.getpid() not in before
        assert set(run(fed, process).values()) == before
        after = set(run(toy.again(fed, executor=fed.executor), process).values())
        assert not before & after
        assert not any(map(alive, before))

    def test_who_took_longest_comes_first_the_next_time(self) -> None:
        slow = toy.IDS[2]
        seconds = {n: 0.5 if n == slow else 0.0 for n in toy.IDS}
        with closing(ProcessesExecutor(1)) as executor:  # one worker begins them in the order in which it is asked
            fed = toy.federation(executor=executor)
            run(fed, quick_or_slow, seconds)
            begun = run(fed, quick_or_slow, seconds)
        assert min(begun, key=begun.__getitem__) == slow

    def test_one_call_needs_no_worker(self, fed: Federation) -> None:
        assert fed.run("phase", process, {toy.IDS[0]: ()}) == {toy.IDS[0]: os.getpid()}

    def test_several_threads_each_are_refused(self, executor: ProcessesExecutor) -> None:
        fed = toy.federation(executor=executor, compute=Compute(device="cpu", threads=2))
        expected = r"compute\.executor has 2 processes, but compute\.threads is 2.*; choose serial\.$"
        with pytest.raises(InputError, match=expected):
            run(fed, process)


class TestErrors:
    def test_come_through_as_they_were_raised_and_afterwards_everything_works(self, fed: Federation) -> None:
        with pytest.raises(InputError) as raised:
            run(fed, refuse)
        assert str(raised.value) == f"client {toy.IDS[1]} has no images: give it some."
        assert "in refuse" in raised.value.__notes__[0]  # where it was raised
        with pytest.raises(RuntimeError, match="ValueError: odd"):  # one that cannot travel says what it said
            run(fed, raise_what_cannot_travel)
        assert run(fed, double, 4) == dict.fromkeys(toy.IDS, 8)

    def test_a_value_that_cannot_travel_is_one(self, fed: Federation) -> None:
        with pytest.raises(RuntimeError, match=r"(?i)pickle.*lambda"):
            run(fed, answer_what_cannot_travel)
        assert run(fed, double, 4) == dict.fromkeys(toy.IDS, 8)

    def test_after_an_interruption_nobody_is_given_an_old_answer(self, fed: Federation) -> None:
        def interrupt(phase: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fed.executor.run(fed, "phase", double, dict.fromkeys(toy.IDS, (4,)), interrupt)
        assert run(fed, double, 5) == dict.fromkeys(toy.IDS, 10)


class TestBesideGPUs:
    """Where torch finds a GPU no worker is forked; the CPU stands in for it, so that all but the kernels is seen."""

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
        monkeypatch.setattr(sys.modules[__name__], "HERE", True)

    def test_no_worker_is_a_fork_of_this_process(self, fed: Federation) -> None:
        """Here autograd has threads for the GPUs since the first backward pass; in a fork it refuses every other."""
        assert [there for _, _, there in run(fed, places).values()] == [False] * 5

    @pytest.mark.parametrize("method", [KTpFL(), create("pfedhn")], ids=["kt_pfl", "pfedhn"])
    def test_the_run_is_that_of_serial(self, executor: ProcessesExecutor, method: Any) -> None:
        feds = [toy.alike("both", executor=each, seed=5) for each in (executor, SerialExecutor())]
        assert toy.same(*(engine.run(method, fed, Schedule(rounds=2, participation=0.8)).state for fed in feds))

    def test_each_has_a_device_of_its_own(self, fed: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resources, "reachable", lambda device: [torch.device("cpu", k) for k in range(2)])
        executor = fed.executor
        assert isinstance(executor, ProcessesExecutor)
        run(fed, process)
        found = [executor._pool[k].ask((places, 3, ())) and executor._pool[k].answer().value for k in range(2)]
        assert [device for device, _, _ in found] == ["cpu:0", "cpu:1"]

    def test_clients_stay_with_their_worker_unless_it_is_busy(self) -> None:
        homes = {3: "one", 7: "other", 11: "other"}
        assert chosen([7, 3, 12, 11], homes, "one") == 12  # nobody's yet
        assert homes[12] == "one"
        assert chosen([7, 3, 11], homes, "one") == 3
        assert chosen([7, 11], homes, "one") == 11  # the other has enough to do
        assert homes[11] == "other"

    def test_a_worker_that_dies_is_replaced_on_its_device(self, fed: Federation, tmp_path: Path) -> None:
        assert run(fed, die_once, str(tmp_path / "trace")) == {n: n for n in toy.IDS}

    def test_what_cannot_be_sent_is_named(self, executor: ProcessesExecutor) -> None:
        fed = toy.federation(executor=executor, build=lambda name: toy.build(name))  # noqa: PLW0108
        with pytest.raises(InputError, match=r"cannot be sent to workers \(.*lambda.*top of a module, or set"):
            run(fed, process)


class TestDeath:
    def test_a_worker_that_dies_is_replaced(self, fed: Federation, tmp_path: Path) -> None:
        assert run(fed, die_once, str(tmp_path / "trace")) == {n: n for n in toy.IDS}
        assert (tmp_path / "trace").exists()

    def test_between_two_calls_too(self, fed: Federation) -> None:
        for pid in set(run(fed, process).values()):
            os.kill(pid, signal.SIGKILL)
        assert run(fed, double, 4) == dict.fromkeys(toy.IDS, 8)

    def test_a_call_that_kills_twice_ends_the_run_with_a_sentence(self, fed: Federation) -> None:
        with pytest.raises(InputError, match=r"Client \d+'s phase ended 2 workers, the last by SIGKILL; .* memory"):
            run(fed, die)

    def test_closing_leaves_no_process(self, executor: ProcessesExecutor, fed: Federation) -> None:
        found = set(run(fed, process).values())
        assert all(map(alive, found))
        executor.close()
        assert not any(map(alive, found))

    def test_workers_end_with_the_run_that_was_killed(self) -> None:
        """In the middle of a call that would take a minute."""
        output, told = os.pipe()
        parent = forked.start(be_busy, told)
        pids = [int(pid) for pid in os.read(output, 1000).split()]
        assert len(pids) == 2
        forked.kill(parent)
        end = time.monotonic() + 10
        while any(map(alive, pids)) and time.monotonic() < end:
            time.sleep(0.02)
        assert not any(map(alive, pids))


def be_busy(told: int) -> None:
    """Tell of two workers that have begun a call."""
    fed = toy.federation(executor=ProcessesExecutor(2))
    pids = " ".join(map(str, set(run(fed, process).values())))
    threading.Timer(0.3, lambda: os.write(told, pids.encode())).start()
    run(fed, quick_or_slow, dict.fromkeys(toy.IDS, 60.0))


class TestChoice:
    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resources, "default_workers", lambda: 6)

    def test_auto_is_what_the_machine_carries(self) -> None:
        made = executors.create(Compute("cpu", executor=ExecutorSettings("auto")))
        assert isinstance(made, ProcessesExecutor)
        assert made.workers == 6

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_auto_is_serial_where_several_are_impossible(self, device: str) -> None:
        assert type(executors.create(Compute(device, threads=2, executor=ExecutorSettings("auto")))) is SerialExecutor

    def test_auto_is_one_for_each_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for device, gpus, expected in (("cuda", 4, 4), ("cuda", 1, 1), ("cuda:1", 4, 1)):
            monkeypatch.setattr(torch.accelerator, "device_count", lambda gpus=gpus: gpus)
            made = executors.create(Compute(device, executor=ExecutorSettings("auto")))
            assert getattr(made, "workers", 1) == expected, (device, gpus)

    def test_several_may_share_a_gpu(self) -> None:
        made = executors.create(Compute("cuda:1", executor=ExecutorSettings(3)))
        assert isinstance(made, ProcessesExecutor)
        assert made.workers == 3

    def test_one_is_serial(self) -> None:
        assert type(executors.create(Compute("cpu", threads=4, executor=ExecutorSettings(1)))) is SerialExecutor

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_several_that_are_impossible_are_refused(self, device: str) -> None:
        with pytest.raises(
            InputError, match=r"compute\.executor has 3 processes, but compute\.threads is 2.*; choose serial\.$"
        ):
            executors.create(Compute(device, threads=2, executor=ExecutorSettings(3)))
