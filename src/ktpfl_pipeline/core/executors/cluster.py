"""Clients on the machines of a Ray cluster: the serial executor's result, bit for bit.

A worker is a Ray actor with one torch thread. Each client has its worker, which is sent its images once; a model that
it makes stays on its machine as an object of Ray, and the server holds a handle (`RemoteParams`) that fetches it when a
tensor is looked at: to mix models, and for the checkpoint. The next verb for this client is given the handle back.
Knowledge, losses and accuracies travel.

A worker that dies is replaced, given its clients' images anew, and goes on with what it had not answered: a verb
changes nothing but what it returns. Its models survive it, in the memory of its machine. With the machine they are
gone; `LostError` then takes the engine back to its checkpoint. Only this file and `ray_session.py` know of Ray, and
they load it when needed.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Literal

import torch
from torch import Tensor

from ktpfl_pipeline.core.client.operations import Outcome, Workspace, checked
from ktpfl_pipeline.core.errors import InputError, LostError
from ktpfl_pipeline.core.executors import resources
from ktpfl_pipeline.core.executors.ray_session import Session, about, carry_tensors, check, refuse_others
from ktpfl_pipeline.core.executors.serial import Key, SerialExecutor, Value
from ktpfl_pipeline.core.weights import Handle

if TYPE_CHECKING:
    from ktpfl_pipeline.core.federation import Client, Federation

ATTEMPTS = 2
"""How often one client's call is given to a worker before the run gives up."""
PATIENCE = 120
"""Seconds in which the workers must have started: each loads torch, from a slow disk perhaps."""


class ClusterExecutor(SerialExecutor):
    """Runs each client's verb on the machine where its data and model are.

    Attributes:
        address: ``"local"``, or that of a cluster: ``"auto"`` for the one that this machine belongs to, or its head's
            ``host:port``.
        workers: number of actors; ``"auto"`` is one for each of the cluster's CPUs.
    """

    def __init__(self, address: str, workers: int | Literal["auto"] = "auto") -> None:
        """Start nothing yet: the cluster is joined when the first verb is called."""
        super().__init__()
        self.address, self.workers = address, workers
        self._session: Session | None = None
        self._pool: list[Any] = []  # handles of the actors
        self._homes: dict[int, int] = {}  # position in the pool by client
        self._fed: Federation | None = None
        self._public: Any = None  # the public images, once for all workers

    def run(
        self, fed: "Federation", phase: str, verb: Callable[..., Outcome[Value]], calls: Mapping[Key, tuple[Any, ...]]
    ) -> dict[Key, Value]:
        """Return the value of ``verb(workspace, n, *arguments)`` for each n of `calls`, in their order.

        Models among the values are `RemoteParams`.

        Raises:
            InputError: if the cluster cannot be had, or a client's call has ended two workers.
            LostError: if a model that the call needs is gone with its machine.
        """
        if not calls:
            return super().run(fed, phase, verb, calls)
        self._start(fed)
        start = time.perf_counter()
        try:
            outcomes = self._outcomes(phase, verb, calls)
        except LostError:
            raise  # the workers are well: they finish what they were given, and are asked anew
        except BaseException:
            self._dismiss()  # others are at work still, for nobody
            raise
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
        return self._kept(phase, {n: outcomes[n] for n in calls})

    def close(self) -> None:
        """End the workers, and Ray where it was started for them; the next verb starts others."""
        super().close()
        self._dismiss()
        if self._session is not None:
            self._session.end()
        self._session = self._public = None

    def _outcomes(
        self, phase: str, verb: Callable[..., Outcome[Value]], calls: Mapping[Key, tuple[Any, ...]]
    ) -> dict[Key, Outcome[Value]]:
        """Give each worker its clients' calls, and collect the answers as they come."""
        import ray

        outcomes: dict[Key, Outcome[Value]] = {}
        attempts: dict[Key, int] = dict.fromkeys(calls, 0)
        waiting: dict[Any, _Asked[Key]] = {}  # by the reference of the answer, each worker's in the order of its work
        homes = {n: self._home(n, place) for place, n in enumerate(calls)}
        for position in range(len(self._pool)):
            waiting |= self._ask(position, verb, {n: calls[n] for n in calls if homes[n] == position})
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            asked: _Asked[Key] = waiting.pop(ready)
            try:
                answer = ray.get(ready)
            except ray.exceptions.RayTaskError:  # no error of the verb, which would be an answer
                ray.get(asked.taken)  # the call could not even be read
                raise
            except ray.exceptions.RayError as error:
                attempts[asked.n] += 1  # the first without an answer is the one that was at work
                self._replace(asked, phase, attempts[asked.n], error)
                waiting = {key: other for key, other in waiting.items() if other.position != asked.position}
                mine = [n for n in calls if homes[n] == asked.position and n not in outcomes]
                waiting |= self._ask(asked.position, verb, {n: calls[n] for n in mine})
                continue
            if isinstance(answer, BaseException):
                raise answer
            assert self._session is not None
            outcomes[asked.n] = replace(answer, value=_attached(answer.value, asked.models, self._session))
            self.progress(phase, len(outcomes), len(calls))
        return outcomes

    def _home(self, n: int | str, place: int) -> int:
        """Return the worker of a client; models of the server have none and go to one after another."""
        return self._homes[n] if isinstance(n, int) else place % len(self._pool)

    def _ask(
        self, position: int, verb: Callable[..., Any], calls: Mapping[Key, tuple[Any, ...]]
    ) -> "dict[Any, _Asked[Key]]":
        """Send a worker its calls in one message, in which what they share stands once; return what will answer."""
        if not calls:
            return {}
        worker = self._pool[position]
        taken = worker.take.remote(verb, calls)
        asked = {}
        for n in calls:
            answer, models = worker.run.options(num_returns=2).remote(n)
            asked[answer] = _Asked(n, position, taken, models)
        return asked

    def _start(self, fed: "Federation") -> None:
        """Bring the federation's data to the workers, which are started where there are none."""
        if self._fed is fed:
            return
        check(self.address, fed.compute.threads, fed.device.type)
        torch.set_num_threads(1)  # also what the server computes here must round as it does in serial
        if self._session is None:
            self._session = Session(self.address, self.workers)
        import ray

        if not self._pool:
            self._pool = _hired(min(self._session.workers, len(fed.clients)))
        self._fed, self._homes = fed, shared_out(fed, len(self._pool))
        self._public = ray.put(fed.public)
        try:
            for position, settled in enumerate([self._settle(position) for position in range(len(self._pool))]):
                try:
                    ray.get(settled)
                except ray.exceptions.RayTaskError:  # what was sent cannot be read there
                    raise
                except ray.exceptions.RayError:  # it has died since it worked for another federation
                    ray.get(self._renew(position))
        except BaseException:
            self._dismiss()
            raise

    def _settle(self, position: int) -> Any:
        """Send a worker the settings, the public set, and the data of its clients alone."""
        fed = self._fed
        assert fed is not None
        given = {entry.name: getattr(fed, entry.name) for entry in fields(fed)}
        del given["public"], given["executor"]
        given["clients"] = tuple(client for client in fed.clients if self._homes[client.id] == position)
        given["compute"] = replace(fed.compute, device=fed.device.type)  # what auto means here
        return self._pool[position].settle.remote(given, self._public)

    def _renew(self, position: int) -> Any:
        """Start a worker in the place of a dead one, wherever there is room: its machine may be gone too."""
        _end(self._pool[position])
        self._pool[position] = _actor(cpus=0)
        return self._settle(position)

    def _replace(self, asked: "_Asked[Any]", phase: str, attempts: int, error: Exception) -> None:
        """Put a new worker in the place of one that has died with a call, or give up."""
        if attempts >= ATTEMPTS:
            raise InputError(
                f"Client {asked.n}'s {phase} ended two workers of the cluster, the last by {type(error).__name__}; "
                "this is mostly too little memory: set compute.workers lower, and give the same command again."
            ) from error
        self._renew(asked.position)

    def _dismiss(self) -> None:
        """End the workers; models that they made stay until the session ends."""
        for worker in self._pool:
            _end(worker)
        self._pool, self._fed = [], None


@dataclass(frozen=True)
class _Asked(Generic[Key]):
    """A call that a worker has been given.

    Attributes:
        n: whose.
        position: the worker's, in the pool.
        taken: reference of what it said when it was sent its calls: nothing, or why it could not read them.
        models: reference of the models of its answer.
    """

    n: Key
    position: int
    taken: Any
    models: Any


def shared_out(fed: "Federation", workers: int) -> dict[int, int]:
    """Return each client's worker: the largest first, each to whoever has least to do.

    What a client costs is taken to be its training images times the numbers in its model.
    """
    initial = fed.initial_prototypes()
    numbers = {name: sum(tensor.numel() for tensor in params.values()) for name, params in initial.items()}

    def cost(client: "Client") -> int:
        return (1 + len(client.train)) * numbers[client.architecture]

    loads, homes = [0] * workers, {}
    for client in sorted(fed.clients, key=cost, reverse=True):
        homes[client.id] = loads.index(min(loads))
        loads[homes[client.id]] += cost(client)
    return homes


class RemoteParams(Handle):
    """A model on the machine of the worker that made it."""

    def __init__(
        self,
        models: Any,
        place: int,
        kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]],
        session: "Session | None" = None,
    ) -> None:
        """Fetch nothing yet.

        Args:
            models: reference of a list of models.
            place: of this one in it.
            kinds: dtype and shape of its tensors.
            session: that the reference is good for; None in a worker, which does not outlive it.
        """
        self.shapes = {name: torch.empty(shape, dtype=dtype, device="meta") for name, (dtype, shape) in kinds.items()}
        self._given = (models, place, kinds)
        self._session = session
        self._here: dict[str, Tensor] | None = None

    def open(self) -> dict[str, Tensor]:
        """Return the model; it is fetched once."""
        if self._here is None:
            models, place, _ = self._reference()
            self._here = fetch(models)[place]
        return self._here

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a reference: a worker fetches the model from where it is."""
        return RemoteParams, self._reference()

    def _reference(self) -> tuple[Any, int, dict[str, tuple[torch.dtype, tuple[int, ...]]]]:
        if self._session is not None and not self._session.alive:
            raise LostError("A model was on a cluster that has been left since.")
        return self._given


def fetch(models: Any) -> list[dict[str, Tensor]]:
    """Bring the models behind a reference to this process.

    Raises:
        LostError: if they are gone with the machine that had them.
    """
    import ray

    try:
        found: list[dict[str, Tensor]] = ray.get(models)
    except ray.exceptions.RayError as error:
        raise LostError(f"A model was lost with the machine that had it ({type(error).__name__}).") from error
    return found


@dataclass(frozen=True)
class _Left:
    """Stands for a model in what a verb returned: the model stays with the worker."""

    place: int
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]]


def _detached(value: Any, models: list[dict[str, Tensor]]) -> Any:
    """Return a verb's value without the models in it, which are added to `models`."""
    if isinstance(value, tuple):
        return tuple(_detached(part, models) for part in value)
    if not (isinstance(value, dict) and value and all(isinstance(part, Tensor) for part in value.values())):
        return value
    models.append(value)
    return _Left(len(models) - 1, {name: (part.dtype, tuple(part.shape)) for name, part in value.items()})


def _attached(value: Any, models: Any, session: "Session") -> Any:
    """Return a verb's value with handles in the place of its models."""
    if isinstance(value, tuple):
        return tuple(_attached(part, models, session) for part in value)
    return RemoteParams(models, value.place, value.kinds, session) if isinstance(value, _Left) else value


class _Worker:
    """The far end: an actor with the data of its clients."""

    def __init__(self) -> None:
        carry_tensors()
        resources.keep_freed_memory()

    def about(self) -> dict[str, str]:
        """Return what must be the same here and there."""
        return about()

    def settle(self, given: dict[str, Any], public: Tensor) -> None:
        """Take the federation, as far as it is this worker's."""
        from ktpfl_pipeline.core.federation import Federation

        self._space = Workspace(Federation(**given, public=public))

    def take(self, verb: Callable[..., Outcome[Any]], calls: dict[Any, tuple[Any, ...]]) -> None:
        """Take the calls that will be asked for one by one."""
        self._verb, self._calls = verb, calls

    def run(self, n: Any) -> tuple[Any, list[dict[str, Tensor]]]:
        """Return the outcome of a call, or the exception that it raised; and the models of it, which stay here."""
        models: list[dict[str, Tensor]] = []
        try:
            outcome = checked(self._verb(self._space, n, *self._calls.pop(n)))
            return replace(outcome, value=_detached(outcome.value, models)), models
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


def _hired(number: int) -> list[Any]:
    """Return as many actors, each on a CPU of its own and as like this process as results need."""
    import ray

    pool = [_actor(cpus=1) for _ in range(number)]
    try:
        found = ray.get([worker.about.remote() for worker in pool], timeout=PATIENCE)
        refuse_others(found)
    except BaseException as error:
        for worker in pool:
            _end(worker)
        if isinstance(error, ray.exceptions.GetTimeoutError):
            raise InputError(
                f"Within {PATIENCE} s the cluster had no CPU free for each of {number} workers; set compute.workers "
                "lower, or wait until others are done."
            ) from None
        if isinstance(error, ray.exceptions.RayError):
            reason = str(error).strip().splitlines()[-1]
            raise InputError(
                f"A worker of the cluster did not start ({reason}); every machine needs the same ktpfl_pipeline, "
                "torch and Ray as this one."
            ) from error
        raise
    return pool


def _actor(cpus: int) -> Any:
    import ray

    made = ray.remote(num_cpus=cpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(_Worker)
    return made.remote()


def _end(worker: Any) -> None:
    import ray

    ray.kill(worker)  # one that has ended is not touched by it
