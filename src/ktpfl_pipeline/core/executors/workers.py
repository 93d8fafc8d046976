"""Several clients side by side, each in a process of its own: the serial executor's result, bit for bit.

A worker is forked, so it has the federation's data without a copy; models and knowledge come and go through shared
memory. It runs one torch thread, so that rounding does not depend on how many workers there are. A worker that dies is
replaced, and its client is begun anew: an operation changes nothing but what it returns.
"""

import os
import select
import signal
import threading
import time
import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from ktpfl_pipeline.core import resources
from ktpfl_pipeline.core.client.outcome import Outcome, performed
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.contract import ATTEMPTS, Calls, Key, Operation, Progress, Value, starved
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.executors.shared_memory import SharedMemory
from ktpfl_pipeline.core.setting import Setting

RESERVED = 2**31
"""Bytes reserved for the tensors of one message each way: a hundred models as large as ResNet-18 would not fit, and
would be sent through the pipe."""


class WorkersExecutor(SerialExecutor):
    """Runs an operation for several clients at once, the one that took longest the last time first.

    Attributes:
        workers: number of processes.
    """

    def __init__(self, workers: int) -> None:
        """Start nothing yet: workers are forked when the first phase starts."""
        super().__init__()
        self.workers = workers
        self._pool: list[_Worker] = []
        self._setting: Setting | None = None
        self._took: dict[tuple[str, Any], float] = {}

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client, as the workers answer.

        Raises:
            InputError: if a client's call has ended two workers: there is too little memory, mostly.
        """
        if len(calls) < 2:
            return super().outcomes(setting, phase, operation, calls, progress)
        self._start(setting)
        waiting = sorted(calls, key=lambda n: self._cost(phase, n, calls[n]))  # the last is the next
        busy: dict[_Worker, Key] = {}
        begun: dict[Key, float] = {}
        attempts: dict[Key, int] = dict.fromkeys(calls, 0)
        outcomes: dict[Key, Outcome[Value]] = {}
        while len(outcomes) < len(calls):
            for position, worker in enumerate(self._pool):
                if waiting and worker not in busy:
                    n = waiting.pop()
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
                    self.close()  # others are at work still, for nobody
                    raise answer
                else:
                    outcomes[n] = answer
                    self._took[phase, n] = time.perf_counter() - begun[n]
                    progress(phase, len(outcomes), len(calls))
        return outcomes

    def close(self) -> None:
        """End the workers; the next phase starts others."""
        super().close()
        for worker in self._pool:
            worker.end()
        self._pool, self._setting = [], None

    def _cost(self, phase: str, n: Any, arguments: tuple[Any, ...]) -> tuple[float, int]:
        """Return how long the call took the last time, and how large its models are."""
        models = [argument for argument in arguments if isinstance(argument, dict)]
        sizes = [value.numel() for model in models for value in model.values() if isinstance(value, torch.Tensor)]
        return self._took.get((phase, n), 0.0), sum(sizes)

    def _start(self, setting: Setting) -> None:
        if self._setting is setting:
            return
        self.close()
        if setting.compute.threads != 1:
            raise InputError(
                f"compute.workers is {self.workers} and compute.threads is {setting.compute.threads}; several workers "
                "have one thread each, or they would fight for the same cores: set compute.threads to 1, or "
                "compute.workers to 1."
            )
        torch.set_num_threads(1)  # also what the server computes here must round as it does in serial
        self._setting = setting
        for _ in range(min(self.workers, len(setting.clients))):
            self._pool.append(_Worker(setting, self._pool))

    def _replace(self, position: int, phase: str, n: Any, attempts: int) -> None:
        """Put a new worker in the place of a dead one."""
        dead = self._pool[position]
        how = dead.end()
        if attempts >= ATTEMPTS:
            self.close()
            raise starved(n, phase, "workers", how)
        assert self._setting is not None
        others = [worker for worker in self._pool if worker is not dead]
        self._pool[position] = _Worker(self._setting, others)


class _Worker:
    """The near end of one worker."""

    def __init__(self, setting: Setting, others: "list[_Worker]") -> None:
        context = get_context("fork")
        self._questions, self._answers = SharedMemory(RESERVED), SharedMemory(RESERVED)
        self.connection, far = context.Pipe()
        foreign = [self.connection, *(other.connection for other in others)]
        memories = (self._questions, self._answers)
        self._process = context.Process(target=_work, args=(setting, far, foreign, *memories), daemon=True)
        self._process.start()
        far.close()

    def ask(self, call: tuple[Any, ...]) -> bool:
        """Send a call, and say whether somebody was there to take it."""
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
        return self._answers.load(rest, copy=True)

    def end(self) -> str:
        """End the process, and say how it ended."""
        self._process.kill()  # one that has ended is not touched by it
        self._process.join()
        self.connection.close()
        code = self._process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _work(
    setting: Setting, near: Connection, foreign: list[Connection], questions: SharedMemory, answers: SharedMemory
) -> None:
    """Answer calls until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what happens
    for connection in foreign:
        connection.close()  # or nobody would see that the parent has died
    resources.keep_freed_memory()
    threading.Thread(target=_end_with_parent, args=(near.fileno(),), daemon=True).start()
    space = Workspace(setting)
    while True:
        try:
            question = near.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        answer: Any
        try:
            operation, n, arguments = questions.load(question, copy=False)
            answer = performed(operation, space, n, arguments)
        except Exception as error:
            error.add_note(f"In a worker:\n{traceback.format_exc()}")
            answer = error
        try:
            rest = answers.dump(answer)
        except Exception:  # an exception that holds what cannot be pickled
            rest = answers.dump(RuntimeError("".join(traceback.format_exception(answer))))
        try:
            near.send_bytes(rest)
        except OSError:
            os._exit(0)


def _end_with_parent(end: int) -> None:
    """End this process in the middle of a call when the parent is gone: nobody waits for the answer."""
    watch = select.poll()
    watch.register(end, 0)  # that the other end hangs up is told unasked
    watch.poll()
    os._exit(0)
