"""Clients on the machines of a Ray cluster: the serial executor's result, bit for bit.

A worker is a Ray actor with one CPU, one torch thread and, to compute on GPUs, a share of a GPU, which Ray assigns.
Each client has its worker, which is sent its samples once. A model that the worker makes stays on the worker's machine
as an object of Ray, and the server holds a handle (`RemoteParams`), which fetches the model when a tensor is looked at:
to mix models, and for the checkpoint. The next operation for this client is given the handle. Predictions, losses and
accuracies travel.

A worker that dies is replaced, is sent its clients' samples again, and continues with the calls that it had not
answered. Its models survive in the memory of its machine. If the machine is lost, `LostError` takes the engine back to
its checkpoint. Only this file and `ray_session.py` know of Ray, and they load it when needed.
"""

import traceback
from dataclasses import dataclass, replace
from typing import Any, Generic

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.outcome import Outcome, performed
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError, LostError, plural
from ktpfl_pipeline.core.executors import base
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.ray_session import Session, about, carry_tensors, check, check_versions, receive_on
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute, Ray
from ktpfl_pipeline.core.weights import Handle

Kinds = dict[str, tuple[torch.dtype, tuple[int, ...]]]
"""Dtype and shape of a model's tensors."""
CPU = torch.device("cpu")
PATIENCE = 120
"""Seconds in which all workers must start. Each worker imports torch, possibly from a slow disk."""


def create(compute: Compute) -> Executor:
    ray, device = compute.executor.ray, compute.place()
    assert ray is not None
    check(ray, compute.threads, device)
    return ClusterExecutor(ray, device)


class ClusterExecutor(Executor):
    """Runs each client's operation on the machine where its data and model are."""

    def __init__(self, settings: Ray, device: torch.device = CPU) -> None:
        """Start nothing yet: the cluster is joined when the first phase starts. `device` is that of `Compute`."""
        self.settings = settings
        each = settings.gpus_per_worker
        self.gpus = 0 if device.type == "cpu" else 1 if each is None else each  # per actor
        self._session: Session | None = None
        self._pool: list[Any] = []  # handles of the actors
        self._homes: dict[Any, int] = {}  # position in the pool by client
        self._setting: Setting | None = None
        self._public: Any = None  # the public samples, once for all workers

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client; models among the values are `RemoteParams`.

        Also raises InputError if the cluster cannot be joined or used, or a client's call has ended `ATTEMPTS` workers.
        """
        if not calls:
            return {}
        try:
            self._start(setting)
            return self._collect(phase, operation, calls, progress)
        except LostError:
            raise  # the workers still run: they finish their calls and get new ones
        except BaseException:
            self._stop()  # other workers may still compute, but their results are not used
            raise

    def close(self) -> None:
        """End the workers and the session; the next phase starts new ones."""
        self._stop()
        if self._session is not None:
            self._session.end()
        self._session = self._public = None

    def _collect(
        self, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Send each worker its clients' calls, and collect the answers as they arrive."""
        import ray

        outcomes: dict[Key, Outcome[Value]] = {}
        attempts: dict[Key, int] = dict.fromkeys(calls, 0)
        waiting: dict[Any, _Asked[Key]] = {}  # by the reference of the answer; each worker's in the order of its work
        # models of the server have no home and go to one worker after another
        homes = {n: self._homes.get(n, place % len(self._pool)) for place, n in enumerate(calls)}

        def ask(position: int) -> None:
            """Send a worker all calls that it has not answered, in one message that contains shared arguments once."""
            if mine := {n: calls[n] for n in calls if homes[n] == position and n not in outcomes}:
                worker = self._pool[position]
                taken = worker.take.remote(operation, mine)
                for n in mine:
                    answer, models = worker.run.options(num_returns=2).remote(n)
                    waiting[answer] = _Asked(n, position, taken, models)

        for position in range(len(self._pool)):
            ask(position)
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            asked: _Asked[Key] = waiting.pop(ready)
            try:
                answer = ray.get(ready)
            except ray.exceptions.RayTaskError:  # not an error of the operation, because `run` returns those
                ray.get(asked.taken)  # the call could not even be read
                raise
            except ray.exceptions.RayError as error:
                attempts[asked.n] += 1  # the worker's first call without an answer is the one that it computed
                if attempts[asked.n] >= base.ATTEMPTS:
                    raise base.call_failed(asked.n, phase, "workers of the cluster", type(error).__name__) from error
                self._renew(asked.position)
                waiting = {key: other for key, other in waiting.items() if other.position != asked.position}
                ask(asked.position)
                continue
            if isinstance(answer, BaseException):
                ray.get(asked.taken)  # raises the actual error if the worker could not read its calls
                raise answer
            assert self._session is not None
            value, state = _attached((answer.value, answer.optimizer_state), asked.models, self._session)
            outcomes[asked.n] = replace(answer, value=value, optimizer_state=state)
            progress(phase, len(outcomes), len(calls))
        return outcomes

    def _start(self, setting: Setting) -> None:
        """Send the federation's data to the workers; start workers if there are none."""
        if self._setting is setting:
            return
        check(self.settings, setting.compute.threads, setting.device)
        torch.set_num_threads(1)  # the server's computations must round as with the serial executor
        if self._session is None:
            self._session = Session(self.settings, self.gpus)
        import ray

        if not self._pool:
            self._pool = [_actor(1, self.gpus) for _ in range(min(self._session.workers, len(setting.clients)))]
            _check_started(self._pool)
        receive_on(setting.device)
        self._setting, self._homes = setting, share_out(setting, len(self._pool))
        self._public = ray.put(setting.public)
        for position, ready_to_work in enumerate([self._set_up(position) for position in range(len(self._pool))]):
            try:
                ray.get(ready_to_work)
            except ray.exceptions.RayTaskError:  # the worker cannot read the data
                raise
            except ray.exceptions.RayError:  # the worker has died since an earlier federation
                ray.get(self._renew(position))

    def _set_up(self, position: int) -> Any:
        """Send a worker the settings, the public set, and the data of its clients alone."""
        setting = self._setting
        assert setting is not None
        given = base.fields_of(
            setting,
            clients=tuple(client for client in setting.clients if self._homes[client.id] == position),
            compute=replace(setting.compute, device=setting.device.type),  # no index: the first GPU that Ray assigned
        )
        del given["public"]
        return self._pool[position].set_up.remote(given, self._public)

    def _renew(self, position: int) -> Any:
        """Replace a dead worker by a new one on any machine with room, because its own machine may be lost too."""
        _end(self._pool[position])
        self._pool[position] = _actor(0, self.gpus)
        return self._set_up(position)

    def _stop(self) -> None:
        """End the workers; models that they made stay until the session ends."""
        for worker in self._pool:
            _end(worker)
        self._pool, self._setting = [], None


@dataclass(frozen=True)
class _Asked(Generic[Key]):
    """A call that a worker has been given."""

    n: Key  # the client, or the model of the server
    position: int  # of the worker in the pool
    taken: Any  # reference of the result of `_Worker.take`: None, or the error of reading the calls
    models: Any  # reference of the models in the answer


def share_out(setting: Setting, workers: int) -> dict[int, int]:
    """Return the position of each client's worker. Costly clients come first; each gets the worker with the least load.

    A client's cost is estimated as its number of training samples times the number of entries in its model.
    """
    initial = setting.initial_prototypes()
    numbers = {name: sum(tensor.numel() for tensor in params.values()) for name, params in initial.items()}

    def cost(client: Client) -> int:
        return (1 + len(client.train)) * numbers[client.architecture]

    loads, homes = [0] * workers, {}
    for client in sorted(setting.clients, key=cost, reverse=True):
        homes[client.id] = loads.index(min(loads))
        loads[homes[client.id]] += cost(client)
    return homes


class RemoteParams(Handle):
    """A model on the machine of the worker that made it."""

    def __init__(self, models: Any, place: int, kinds: Kinds, session: Session | None = None) -> None:
        """Store where the model is, without fetching it.

        `models` is a reference to a list of models, and `place` the model's position in it. `kinds` are dtypes and
        shapes. The reference is valid as long as `session`; None in a worker, which ends with the session.
        """
        self.shapes = {name: torch.empty(shape, dtype=dtype, device="meta") for name, (dtype, shape) in kinds.items()}
        self._given, self._session = (models, place, kinds), session
        self._here: dict[str, Tensor] | None = None

    def open(self) -> dict[str, Tensor]:
        """Return the model, which is fetched by the first call."""
        if self._here is None:
            models, place, _ = self._reference()
            self._here = fetch(models)[place]
        return self._here

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the reference only: the receiving worker fetches the model from the machine that has it."""
        return RemoteParams, self._reference()

    def _reference(self) -> tuple[Any, int, Kinds]:
        if self._session is not None and not self._session.alive:
            raise LostError("A model was on a cluster that has been left since.")
        return self._given


def fetch(models: Any) -> list[dict[str, Tensor]]:
    """Fetch the models of a reference to this process; raise LostError if the machine that had them was lost."""
    import ray

    try:
        found: list[dict[str, Tensor]] = ray.get(models)
    except ray.exceptions.RayError as error:
        raise LostError(f"A model was lost with the machine that had it ({type(error).__name__}).") from error
    return found


@dataclass(frozen=True)
class _Left:
    """The replacement of a model in the value of an operation; the model stays with the worker."""

    place: int
    kinds: Kinds


def _detached(value: Any, models: list[dict[str, Tensor]]) -> Any:
    if isinstance(value, tuple):
        return tuple(_detached(part, models) for part in value)
    if not (isinstance(value, dict) and value and all(isinstance(part, Tensor) for part in value.values())):
        return value
    models.append(value)
    return _Left(len(models) - 1, {name: (part.dtype, tuple(part.shape)) for name, part in value.items()})


def _attached(value: Any, models: Any, session: Session) -> Any:
    if isinstance(value, tuple):
        return tuple(_attached(part, models, session) for part in value)
    return RemoteParams(models, value.place, value.kinds, session) if isinstance(value, _Left) else value


class _Worker:
    """The worker itself: an actor with the data of its clients."""

    def __init__(self) -> None:
        carry_tensors()
        resources.keep_freed_memory()

    def about(self) -> dict[str, str]:
        return about()

    def set_up(self, given: dict[str, Any], public: Tensor) -> None:
        receive_on(given["compute"].place())
        self._space = Workspace(Setting(**given, public=public))

    def take(self, operation: Operation[Any], calls: dict[Any, tuple[Any, ...]]) -> None:
        self._operation, self._calls = operation, calls

    def run(self, n: Any) -> tuple[Any, list[dict[str, Tensor]]]:
        """Return the outcome of a call without its models, or its exception, and the list of the models."""
        models: list[dict[str, Tensor]] = []
        try:
            outcome = performed(self._operation, self._space, n, self._calls.pop(n))
            value, state = _detached((outcome.value, outcome.optimizer_state), models)
            return replace(outcome, value=value, optimizer_state=state), models
        except Exception as error:
            error.add_note(f"In a worker of the cluster:\n{traceback.format_exc()}")
            return _that_travels(error), []


def _that_travels(error: Exception) -> Exception:
    from ray import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))  # type: ignore[no-untyped-call]
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def _check_started(pool: list[Any]) -> None:
    """Check that actors start, each on its own CPU, with identical versions of torch and of this package."""
    import ray

    try:
        check_versions(ray.get([worker.about.remote() for worker in pool], timeout=PATIENCE))
    except ray.exceptions.GetTimeoutError:
        raise InputError(
            f"Within {PATIENCE} s the cluster had no CPU or GPU free for each of {plural(len(pool), 'worker')}; set "
            "fewer workers in compute.executor, or wait until others are done."
        ) from None
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(
            f"A worker of the cluster did not start ({reason}); every machine needs the same ktpfl_pipeline, "
            "torch and Ray as this one."
        ) from error


def _actor(cpus: int, gpus: float) -> Any:
    import ray

    made = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(
        _Worker
    )
    return made.remote()


def _end(worker: Any) -> None:
    import ray

    ray.kill(worker)  # no effect on a worker that has ended
