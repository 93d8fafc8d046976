"""The server's executor: every phase is a message to each of its clients, and models stay at the clients.

A method has a handle of a client's model, `Held`. The handle can be opened if the client sent the model. Clients send
models only for methods that declare to exchange models. A client without a valid reply in time drops out of the round
(`ClientsMissing`), and the engine repeats the round without this client. The replies of all other clients are reused,
so no client trains twice.
"""

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ktpfl_flower import codes, operations
from ktpfl_flower.server import bounds
from ktpfl_flower.server.attendance import Attendance
from ktpfl_flower.server.handles import Drawn, Held, named
from ktpfl_flower.wire import INITIAL, STAYS, Left, Packet, packed, to_bytes, unpacked
from ktpfl_pipeline.core import errors
from ktpfl_pipeline.core.client.operations import predict
from ktpfl_pipeline.core.client.outcome import Outcome, Resuming
from ktpfl_pipeline.core.client.workspace import OWN
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import ClientsMissing, DivergedError, InputError, LostError, by_reason, plural
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, Progress, Value
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import EVALUATED_ONLY, Federation
from ktpfl_pipeline.core.knowledge import channel
from ktpfl_pipeline.core.knowledge.channel import Delivery, Message
from ktpfl_pipeline.core.setting import DTYPES, Setting, Split
from ktpfl_pipeline.core.shares import rounded_up
from ktpfl_pipeline.core.weights import Params

logger = logging.getLogger(__name__)


class RealExecutor(Executor):
    """Runs clients' operations at the clients, and operations on the server's models in this process.

    Attributes:
        attendance: which clients take part.
        bare: clients that have lost their models and have no new ones yet.
        resumed: whether the run continues from a checkpoint of an earlier process.
    """

    def __init__(self, attendance: Attendance, method: str) -> None:
        """Send nothing yet; `enter` comes first."""
        self.attendance, self._method, self._file = attendance, method, attendance.plan.file
        self._here = SerialExecutor()
        self.resumed = False
        self._alive: dict[int, WeakValueDictionary[tuple[int, bool], Held]] = {}  # by number, and whether it stayed
        self._round = 0
        self._failed: dict[int, int] = {}  # attempts with too few clients, by round
        self._answered: dict[tuple[int, bytes], Outcome[Any]] = {}  # in this round, by client and hash of the request
        self._lost: set[int] = set()  # clients that lost models in this round
        self.bare: set[int] = set()
        self._revived: dict[int, bool] = {}  # by client, whether a model is lost; until logged

    def enter(self, setting: Setting, begin: Packet) -> None:
        """Prepare for the clients of a setting, each of which gets a packet before its first phase."""
        torch.set_num_threads(setting.compute.threads)
        shapes = {name: operations.shapes_of(setting, name) for name in setting.models()}
        self._known = {n: operations.Known(setting, shapes[own.architecture]) for n, own in setting.by_id.items()}
        self._alive = {n: WeakValueDictionary() for n in setting.by_id}
        self._begin = begin

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        """Return the outcome for each client; models among the values are `Held`.

        Raises:
            InputError: if the operation is not offered, or a client's reply ends the run.
            ClientsMissing: if some clients sent no valid reply in time.
            DivergedError: if some report that their result is NaN or infinite.
        """
        if not calls or any(isinstance(n, str) for n in calls):
            return self._here.outcomes(setting, phase, operation, calls, progress)
        encoded = setting.knowledge.encoding != "float32" and "predictions" in operations.exchanges(self._method)
        resumes, name = isinstance(operation, Resuming), self._offered(phase, operation, encoded)
        self.start()
        # models that are only evaluated never travel
        wanted, evaluated = phase not in EVALUATED_ONLY, name == "evaluate" or phase in EVALUATED_ONLY
        states: dict[Any, Any] = {n: getattr(call[0], "version", INITIAL) for n, call in calls.items() if resumes}
        given: dict[Any, tuple[Any, ...]] = {
            n: codes.sent(setting, name, call[1] if resumes else call) for n, call in calls.items()
        }
        outcomes, requests, asked = dict[Any, Outcome[Value]](), dict[Any, tuple[int, bytes]](), dict[int, Packet]()
        for n, arguments in given.items():
            value = packed(tuple(named(argument, n) for argument in arguments))
            request = {**value.values, "operation": name, "wanted": wanted, "state": states.get(n)}
            requests[n] = n, hashlib.sha256(to_bytes(Packet(request, value.tensors))).digest()
            if requests[n] in self._answered:
                outcomes[n] = self._answered[requests[n]]
            elif n in self.attendance.here:
                keep = {version for version, _ in self._alive[n]}  # the client deletes the other models
                self.attendance.kept[n] &= keep
                asked[n] = Packet({**request, "keep": sorted(keep)}, value.tensors)
        broken, what = dict[int, str](), f"the request for {operations.find(name).words}"
        for n, packet in self.attendance.ask("perform", asked, what):
            if isinstance(why := packet.values.get("diverged"), str):
                broken[n] = why[:200]
                continue
            try:
                outcome = self._outcome(n, name, given[n], packet, operations.travels(self._method, wanted))
            except InputError as error:
                self.attendance.exclude(n, f"sent an invalid reply to {what}: {error}", unsound=True, tell=True)
                continue
            if evaluated and outcome.finite is not None and not outcome.finite:
                broken[n] = "its model is NaN or infinite"
                continue
            outcomes[n] = self._answered[requests[n]] = outcome
            progress(phase, len(outcomes), len(calls))
        for n, why in bounds.beyond(self._sizes(setting, name, outcomes)).items():
            del outcomes[n], self._answered[requests[n]]
            self.attendance.exclude(n, f"sent an invalid reply to {what}: {why}", unsound=True, tell=True)
        missing = self.attendance.absent(given.keys() - outcomes.keys())
        if evaluated:  # a client whose copy diverges is left out of an evaluation; the run continues
            missing |= {n: f"diverged in the evaluation ({why})" for n, why in broken.items()}
        if missing:
            raise ClientsMissing(missing, setting.names)
        if broken:
            raise DivergedError(broken, names=setting.names)
        return outcomes

    def _offered(self, phase: str, operation: Operation[Any], encoded: bool) -> str:
        """Return the name of an operation in the table; raise InputError if clients do not offer it.

        Args:
            phase: the phase.
            operation: the operation.
            encoded: whether clients encode the predictions that they send, and decode those that they get.
        """
        inner = getattr(operation, "operation", operation)
        for name, offer in operations.OPERATIONS.items():
            if offer.perform is (codes.ENCODED.get(inner, inner) if encoded else inner):
                return name
        raise InputError(
            f"The phase {phase} of {self._method} is not supported with real clients. Choose a method from "
            f"{', '.join(operations.TRIED)}."
        )

    def missing(self, setting: Setting, clients: Sequence[int], t: int, least: int | None = None) -> dict[int, str]:
        """Register clients that came back, and return which of these are missing in round t; see `Executor`.

        Raises:
            LostError: if a client came back without its model.
            InputError: if a client is missing before the first round, or no client still has its models of the
                checkpoint.
        """
        first = self._round == 0 and not self.resumed
        if t != self._round:
            self._round, self._answered, self._lost = t, {}, set()
        self.attendance.wait(clients, self._least(clients) if least is None else least)
        self._report_lost()
        self.start()
        if first and (out := self.attendance.absent(setting.by_id)):
            raise InputError(
                f"{ClientsMissing(out, setting.names)} All clients are needed before the first round. Check their "
                "programs, restart those that have ended, and run the same command again; finished methods are reused."
            )
        for n in list(self.attendance.here):
            if lost := [key for key in self._alive[n] if key[0] not in self.attendance.kept[n]]:
                if n in self._lost:  # otherwise one client could restart a round forever
                    self.attendance.exclude(n, f"came back without its models twice in round {t}")
                    continue
                self._lost.add(n)
                for key in lost:
                    del self._alive[n][key]
                self._answered = {key: found for key, found in self._answered.items() if key[0] != n}
                self.bare.add(n)
                raise LostError(f"{self._named(n)} has lost its stored models and continues like a new client.")
        return self.attendance.absent(clients)

    def enough(self, cohort: Sequence[int], out: Mapping[int, str], t: int) -> bool:
        """Return whether round t has its quorum without the clients that are `out`; otherwise it is attempted again.

        Raises:
            InputError: if this was the last attempt.
        """
        left, needed = len(cohort) - len(out), self._least(cohort)
        if left >= needed:
            return True
        self._failed[t], why = self._failed.get(t, 0) + 1, "; ".join(by_reason(out, self.attendance.names))
        if self._failed[t] >= self._file.tries:
            lower = math.floor(100 * left / len(cohort)) / 100
            without = f"; or set quorum to {lower:g} to continue with {plural(left, 'client')}" if left else ""
            raise InputError(
                f"Round {t} was attempted {plural(self._file.tries, 'time')} with too few clients, the last time with "
                f"{left} of {len(cohort)}, but quorum requires {needed} ({why}). Restart these clients; or raise "
                f"deadline if they were only slow{without}. Then run the same command again; the run continues after "
                "its last finished round."
            )
        of = plural(len(cohort), "client")
        logger.warning("Round %d is repeated, because it has only %d of its %s left (%s).", t, left, of, why)
        return False

    def _least(self, cohort: Sequence[int]) -> int:
        """Return the number of clients of a cohort that a round needs, at least one."""
        return max(1, rounded_up(self._file.quorum, len(cohort)))

    def revived(self, setting: Setting, value: Any) -> Any:
        """Return a part of a checkpoint with handles instead of the names of models; see `Executor`.

        A model that its client has lost is replaced by the initial model of its architecture; a warning names the
        client when the next round starts.
        """
        self.resumed = True
        match value:
            case {"drawn": str(architecture)}:
                return Drawn(setting, architecture)
            case {"held": [int(n), int(version)]}:
                lost = n in self.attendance.here and version not in self.attendance.kept[n]
                if n in self.attendance.here:
                    self._revived[n] = self._revived.get(n, False) or lost
                return Drawn(setting, setting.by_id[n].architecture) if lost else self._held(n, Left(version))
            case dict():
                return {key: self.revived(setting, part) for key, part in value.items()}
            case list() | tuple():
                return type(value)(self.revived(setting, part) for part in value)
        return value

    @property
    def is_newest(self) -> bool:
        """Whether the clients have taken part in no other run since, and still have models of this one."""
        here, lost = set(self.attendance.here), list(self._revived.values())
        return bool(here) and here <= self.attendance.told and not (lost and all(lost))

    def start(self) -> None:
        """Send the run's settings to clients that take part and do not have them yet."""
        new = [n for n in self.attendance.here if n not in self.attendance.told]
        for n, _ in self.attendance.ask("begin", dict.fromkeys(new, self._begin), "the request to start the run"):
            self.attendance.told.add(n)

    def end(self, models: Mapping[int, Params]) -> dict[int, str]:
        """Let each client store its own final model, and return which clients are missing."""
        here = {n: packed(named(params, n)) for n, params in models.items() if n in self.attendance.here}
        ended = {n for n, _ in self.attendance.ask("end", here, "the request to store its final model")}
        return self.attendance.absent(models.keys() - ended)

    def close(self) -> None:
        """Free the workspace of the server's models."""
        self._here.close()

    def _report_lost(self) -> None:
        """Name the clients that lost models of the checkpoint, before `start`, which deletes other runs."""
        found, self._revived = self._revived, {}
        gone = [n for n, lost in found.items() if lost and n not in self.bare]
        if gone and len(gone) == len(found):
            raise InputError(
                f"No client still has its models of the last checkpoint of run {self.attendance.run}: these clients "
                "have taken part in another run since, or their folders were deleted. To start the run again from "
                "round 1, delete its folder in data/06_models."
            )
        self.bare.update(gone)
        for n in gone:
            logger.warning(
                "%s has lost its models of the last checkpoint; it continues with its initial model.", self._named(n)
            )

    def _outcome(self, n: int, name: str, arguments: tuple[Any, ...], packet: Packet, travels: bool) -> Outcome[Any]:
        """Return the checked outcome in a client's reply; raise InputError if the reply is not valid."""
        value, known, samples = unpacked(packet), self._known[n], packet.values.get("samples", {})
        loss, finite = packet.values.get("loss"), packet.values.get("finite")
        operations.check_answer(name, value, arguments, known, travels)
        if name == "logits_encoded":
            shape = len(arguments[1]), known.setting.classes
            value = codes.decoded(known.setting.knowledge, value, shape, logits=True)
            value = value.to(DTYPES[known.setting.compute.dtype])
        if not _is_count(samples, known.setting.by_id[n].architecture):
            raise InputError("it does not state how many samples it trained on.")
        trains = isinstance(value, Left) and operations.find(name).trains
        if not trains and (loss is not None or finite is not None):
            raise InputError(f"it has the loss of a training, {loss!r:.80}, but was not asked to train.")
        if not isinstance(value, Left):
            return Outcome(value, samples=samples)
        if not trains:
            self.attendance.kept[n].add(value.version)
            return Outcome(self._held(n, value), samples=samples)
        if private := name == "train_privately":  # its loss would tell more than ε covers
            if loss is not None:
                raise InputError(f"it has the loss of a private training, {loss!r:.80}.")
        elif type(loss) is not float or operations.LOSS < abs(loss) < math.inf:
            raise InputError(f"its loss is {loss!r:.80}, which is not a number up to {operations.LOSS:,.0f}.")
        if type(finite) is not bool:  # or a model that is NaN would count
            raise InputError(f"it must state whether its model is finite, true or false, but states {finite!r:.80}.")
        if finite and not all(bool(tensor.isfinite().all()) for tensor in (value.model or {}).values()):
            raise InputError("its model has values that are NaN or infinite, but the reply states that all are finite.")
        flag, mean = torch.tensor(finite), None if private else torch.tensor(loss, dtype=torch.float64)
        self.attendance.kept[n].add(value.version)
        self.bare.discard(n)
        return Outcome(self._held(n, value), mean, flag, samples, self._held(n, Left(value.version)))

    def _sizes(self, setting: Setting, name: str, outcomes: Mapping[Any, Outcome[Any]]) -> dict[int, bounds.Sizes]:
        """Return the largest numbers in the clients' replies to an operation; see `bounds`."""
        samples = torch.arange(min(bounds.PUBLIC, len(setting.public)))
        found = {}
        for n, outcome in outcomes.items():
            model = outcome.value.model if isinstance(outcome.value, Held) else None

            def predicted(params: Params, architecture: str = setting.by_id[n].architecture) -> Tensor:
                space = self._here.workspace(setting)
                return predict(space, space.module(architecture, params), space.public(samples))

            found[n] = bounds.sizes(operations.find(name).gives, outcome.value, model, predicted)
        return found

    def _named(self, n: int) -> str:
        return errors.named(n, self.attendance.names)

    def _held(self, n: int, left: Left) -> Held:
        key = left.version, left.model is None
        return self._alive[n].setdefault(key, Held(n, left, self._known[n].shapes))


class RealFederation(Federation):
    """A federation whose clients have the samples, draw their initial models, and encode and decode predictions."""

    executor: RealExecutor

    def initial_model(self, architecture: str) -> Params:
        """Return a handle of the initial weights of an architecture, which draws them when it is opened."""
        return Drawn(self, architecture)

    def delivered(self, n: int, message: Message, kept: Params) -> Delivery:
        """Return the delivery of a message, which is encoded where it is sent; see `codes`."""
        if self.knowledge.encoding == "float32":
            return super().delivered(n, message, kept)
        parts = channel.encoded(self.knowledge, message.values, message.logits)  # of the same size for any values
        known = torch.ones(len(message.values), dtype=torch.bool)
        return Delivery(message.values, known, sum(part.nbytes for part in parts), {})

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabeledDataset:
        """Raise InputError: only a client itself has its samples."""
        raise InputError(STAYS)


def _is_count(samples: Any, architecture: str) -> bool:
    """Return whether `samples` are valid numbers of samples by architecture from a client with this architecture."""
    if not isinstance(samples, dict) or not samples.keys() <= {OWN, architecture}:
        return False
    return all(type(number) is int and 0 <= number <= operations.COUNTED for number in samples.values())
