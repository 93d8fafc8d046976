"""Several clients at once, each in its own process, with the serial executor's result, bit for bit.

A worker is forked, so it has the federation's data without a copy. Models and knowledge are exchanged through shared
memory. A worker runs one torch thread, so that rounding does not depend on the number of workers. A worker that dies is
replaced and its client starts again, because an operation has no side effects.

A process with access to a GPU cannot be forked: CUDA does not work after a fork, and the first backward pass starts a
thread for each GPU, even if everything is computed on the CPU (PyTorch's notes, "Autograd and Fork"). Workers are then
forked from a server process that has only loaded the same modules (`forkserver`), and they share one copy of the data.
Workers are assigned to the GPUs in turn. A client stays with the worker whose GPU has its samples, unless another
worker is idle.
"""

import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import torch

from ktpfl_pipeline.core.client.outcome import Outcome, performed
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.executors import base
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.shared_memory import SharedMemory
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import Compute

RESERVED = 2**31
"""Bytes reserved for the tensors of one message in each direction. Tensors that do not fit, such as a hundred ResNet-18
models, are sent through the pipe."""
OF_DATA = 2**36
"""Bytes reserved for the samples of a federation that are sent to workers that are not forked."""
Method = Literal["fork", "forkserver"]
Make = Callable[[], Setting]
"""The function with which a worker gets the setting."""


def obstacle(threads: int) -> str:
    """Return why several processes with this number of torch threads are impossible; empty if they are possible."""
    if threads != 1:
        return (
            f"compute.threads is {threads}, and several threads in each of several processes would compete for the "
            "same cores (set it to 1)"
        )
    return "" if "fork" in get_all_start_methods() else "this system cannot fork processes"


def check(workers: int, threads: int) -> None:
    """Check that this number of processes is possible with these torch threads; else raise InputError."""
    if reason := obstacle(threads):
        raise InputError(f"compute.executor has {plural(workers, 'process')}, but {reason}; choose serial.")


def create(compute: Compute) -> Executor:
    """Return the executor with this many processes; ``auto`` means one if several are impossible."""
    number, device = compute.executor.processes, compute.place()
    if number == "auto":
        most = resources.default_workers() if device.type == "cpu" else len(resources.reachable(device))
        number = 1 if obstacle(compute.threads) else most
    assert number is not None
    if number > 1:
        check(number, compute.threads)
    return ProcessesExecutor(number) if number > 1 else SerialExecutor()


class ProcessesExecutor(Executor):
    """Runs an operation for several clients at once, starting with the client that took longest the last time."""

    def __init__(self, workers: int) -> None:
        """Start nothing yet: workers are started with the first phase."""
        self.workers = workers  # number of processes
        self._serial = SerialExecutor()  # for a phase with a single client
        self._pool: list[_Worker] = []
        self._setting: Setting | None = None
        self._parcel: _Parcel | None = None
        self._homes: dict[Any, _Worker] = {}  # the worker whose GPU has a client's samples
        self._took: dict[tuple[str, Any], float] = {}  # last seconds by phase and client

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client.

        Also raises InputError if a call has ended `ATTEMPTS` workers, mostly for lack of memory.
        """
        if len(calls) < 2:
            return self._serial.outcomes(setting, phase, operation, calls, progress)
        try:
            self._start(setting)
            return self._collect(phase, operation, calls, progress)
        except BaseException:
            self.close()  # other workers may still compute, but their results are not used
            raise

    def close(self) -> None:
        """End the workers; the next phase starts new ones."""
        self._serial.close()
        for worker in self._pool:
            worker.end()
        if self._parcel is not None:
            self._parcel.close()
        self._pool, self._setting, self._parcel = [], None, None
        self._homes.clear()

    def _collect(
        self, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Give each worker one call at a time, and collect the answers as they arrive."""
        waiting = sorted(calls, key=lambda n: self._cost(phase, n, calls[n]))  # the last is called next
        busy: dict[_Worker, Key] = {}
        begun: dict[Key, float] = {}
        attempts: dict[Key, int] = dict.fromkeys(calls, 0)
        outcomes: dict[Key, Outcome[Value]] = {}
        while len(outcomes) < len(calls):
            for position, worker in enumerate(self._pool):
                if waiting and worker not in busy:
                    n = waiting[-1] if self._parcel is None else chosen(waiting, self._homes, worker)
                    waiting.remove(n)
                    attempts[n] += 1
                    begun[n] = time.perf_counter()
                    if worker.ask((operation, n, calls[n])):
                        busy[worker] = n
                    else:
                        self._replace(position, phase, n, attempts[n])
                        waiting.append(n)
            for connection in wait([worker.connection for worker in busy]) if busy else ():
                worker = next(worker for worker in busy if worker.connection is connection)
                n, answer = busy.pop(worker), worker.answer()
                if answer is None:
                    self._replace(self._pool.index(worker), phase, n, attempts[n])
                    waiting.append(n)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    outcomes[n] = answer
                    self._took[phase, n] = time.perf_counter() - begun[n]
                    progress(phase, len(outcomes), len(calls))
        return outcomes

    def _cost(self, phase: str, n: Any, arguments: tuple[Any, ...]) -> tuple[float, int]:
        """Return the last seconds of the call, 0 for a new call, and the number of entries in its models."""
        models = [argument for argument in arguments if isinstance(argument, dict)]
        sizes = [value.numel() for model in models for value in model.values() if isinstance(value, torch.Tensor)]
        return self._took.get((phase, n), 0.0), sum(sizes)

    def _start(self, setting: Setting) -> None:
        if self._setting is setting:
            return
        self.close()
        check(self.workers, setting.compute.threads)
        torch.set_num_threads(1)  # the server's computations must round as in the serial executor too
        self._setting = setting
        forkable = setting.device.type == "cpu" and torch.accelerator.device_count() == 0  # even unused GPUs matter
        if forkable and not (setting.training.plain and setting.distillation.plain):
            torch.optim.SGD([torch.zeros(1)], 0.0)  # imports torch's compiler once for all workers, which takes seconds
        self._parcel = None if forkable else _Parcel(setting)
        for position in range(min(self.workers, len(setting.clients))):
            self._pool.append(self._worker(position, self._pool))

    def _replace(self, position: int, phase: str, n: Any, attempts: int) -> None:
        dead = self._pool[position]
        how = dead.end()
        if attempts >= base.ATTEMPTS:
            raise base.call_failed(n, phase, "workers", how)
        self._homes = {n: worker for n, worker in self._homes.items() if worker is not dead}
        self._pool[position] = self._worker(position, [worker for worker in self._pool if worker is not dead])

    def _worker(self, position: int, others: "list[_Worker]") -> "_Worker":
        """Start the worker at a position in the pool, whose other workers are `others`. Positions use GPUs in turn."""
        setting = self._setting
        assert setting is not None
        if self._parcel is None:
            return _Worker("fork", lambda: setting, setting.device, [other.connection for other in others])
        devices = resources.reachable(setting.device)
        given = partial(self._parcel.open, devices[position % len(devices)])
        return _Worker("forkserver", given, setting.device)


def chosen(waiting: list[Key], homes: dict[Any, Any], worker: Any) -> Key:
    """Return the next client for a worker and make the worker its home.

    The worker's own clients and clients without a home come first, then all others. Among these the last is chosen.
    """
    own = [n for n in waiting if homes.get(n, worker) is worker]
    n = (own or waiting)[-1]
    homes.setdefault(n, worker)
    return n


class _Parcel:
    """A setting that is sent to workers that are not forked. All workers share one copy of its tensors."""

    def __init__(self, setting: Setting) -> None:
        self._memory = SharedMemory(OF_DATA, file=True)
        try:
            self._rest = self._memory.dump(base.fields_of(setting))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"The federation cannot be sent to workers ({error}), which are not forked where there is a GPU: "
                "define its functions and classes at the top of a module, or set compute.executor to serial."
            ) from error

    def close(self) -> None:
        """Stop sending the setting; workers that have it keep it."""
        self._memory.close_file()

    def open(self, device: torch.device) -> Setting:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        given = self._memory.load(self._rest, copy=False, device=device)
        return Setting(**given | {"compute": replace(given["compute"], device=str(device))})


class _Worker:
    """One worker as seen by the server, which computes on `device`."""

    def __init__(self, method: Method, make: Make, device: torch.device, foreign: Sequence[Connection] = ()) -> None:
        context: Any = get_context(method)
        forked = method == "fork"
        if not forked:  # the fork server loads the same modules once, which takes seconds
            ours = __name__.partition(".")[0]
            context.set_forkserver_preload([name for name in sys.modules if name.partition(".")[0] == ours])
        self._device = device
        self._questions, self._answers = (SharedMemory(RESERVED, file=not forked) for _ in range(2))
        self.connection, far = context.Pipe()
        closed = [self.connection, *foreign] if forked else []
        memories = (self._questions, self._answers)
        self._process = context.Process(target=_work, args=(make, far, closed, *memories), daemon=True)
        self._process.start()
        far.close()
        for memory in memories:
            memory.close_file()

    def ask(self, call: tuple[Any, ...]) -> bool:
        try:
            self.connection.send_bytes(self._questions.dump(call))
        except OSError:
            return False
        return True

    def answer(self) -> Any:
        """Return the outcome of the call, or the exception that it raised; None if the worker has died."""
        try:
            rest = self.connection.recv_bytes()
        except (EOFError, OSError):
            return None
        return self._answers.load(rest, copy=True, device=self._device)

    def end(self) -> str:
        self._process.kill()  # no effect on a process that has ended
        self._process.join()
        self.connection.close()
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _work(
    make: Make, near: Connection, foreign: Sequence[Connection], questions: SharedMemory, answers: SharedMemory
) -> None:
    """Answer calls until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    for connection in foreign:
        connection.close()  # else no worker would notice that the parent has died
    resources.keep_freed_memory()
    threading.Thread(target=_end_with_parent, args=(near.fileno(),), daemon=True).start()
    space: Workspace | None = None
    while True:
        try:
            question = near.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        answer: Any
        try:
            space = space or Workspace(make())
            operation, n, arguments = questions.load(question, copy=False, device=space.device)
            answer = performed(operation, space, n, arguments)
        except Exception as error:
            error.add_note(f"In a worker:\n{traceback.format_exc()}")
            answer = error
        try:
            rest = answers.dump(answer)
        except Exception as error:  # the value or the exception cannot be pickled
            shown = answer if isinstance(answer, BaseException) else error
            rest = answers.dump(RuntimeError("".join(traceback.format_exception(shown))))
        try:
            near.send_bytes(rest)
        except OSError:
            os._exit(0)


def _end_with_parent(end: int) -> None:
    """End this process when its parent has ended, even during a call, because no process waits for the answer."""
    watch = select.poll()
    watch.register(end, 0)  # poll always reports that the other end has closed
    watch.poll()
    os._exit(0)
