"""One client of a real federation: its samples, its models, and its replies to the server's messages.

It replies to ``register`` (its description), ``begin`` (a run's settings and public set), ``perform`` (one operation of
the table), ``end`` (its own model at the end) and ``note`` (a line for its log). Its models are stored on its disk, so
the client's process may be stopped between any two messages.
"""

import logging
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower import operations
from ktpfl_flower.alike import Arithmetic, Data, versions
from ktpfl_flower.client import client_file
from ktpfl_flower.client.budget import Budget, fresh_seed
from ktpfl_flower.client.private import fingerprint, private, refusal
from ktpfl_flower.wire import INITIAL, Left, Packet, from_bytes, packed, to_bytes, unpacked
from ktpfl_pipeline import models
from ktpfl_pipeline.analysis import kept
from ktpfl_pipeline.analysis.inputs import facts
from ktpfl_pipeline.core.client.outcome import Outcome, Resuming, performed
from ktpfl_pipeline.core.client.workspace import OWN, Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import DivergedError, InputError, LostError, printable
from ktpfl_pipeline.core.kinds import described
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute, Distillation, Knowledge, LocalTraining
from ktpfl_pipeline.core.validation import Count, Rule, Seed, value_of
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.data.inspection import of_splits
from ktpfl_pipeline.data.sources import Reading
from ktpfl_pipeline.data.sources.tokens import check_ids
from ktpfl_pipeline.data.standardization import Standardization

logger = logging.getLogger(__name__)
MOST = 4000
"""The most characters of the server's message for a client's log."""


@dataclass(frozen=True)
class Told:
    """The settings of a run, which the server sends before its first round, with the number of that message."""

    run: str
    method: str
    seed: Seed
    rounds: Count
    classes: Count
    class_names: client_file.Names
    clients: list[int]
    training: LocalTraining
    distillation: Distillation
    knowledge: Knowledge
    compute: Arithmetic
    number: Seed


class Participation:
    """A client's part of one run.

    Attributes:
        told: the settings of the run, which the server sent.
        folder: the folder with the stored models, each named by its number.
        scale: the standardization of features; None for other kinds.
        space: the client's workspace.
        known: the values against which the arguments of operations are checked.
        last: the number of the newest message.
    """

    def __init__(self, told: Told, of: Setting, folder: Path, scale: Standardization | None) -> None:
        self.told, self.folder, self.scale, self.last = told, folder, scale, 0
        with private():  # an error may name the device of its file
            self.space = Workspace(of)
        self._architecture = of.clients[0].architecture
        self.known = operations.Known(of, operations.shapes_of(of, self._architecture))
        self._here: dict[int, dict[str, Any]] = {}

    def take(self, number: Any) -> None:
        """Accept a message by its number; an older message would delete newer models.

        Raises:
            InputError: if the number is not greater than all before.
        """
        if type(number) is not int or not self.last < number < 2**63:
            raise InputError(
                f"message {str(number)[:40]} is not newer than message {self.last}, which was received before."
            )
        self.last = number

    def performed(self, operation: Any, arguments: tuple[Any, ...], privately: bool) -> Outcome[Any]:
        """Return the outcome of an operation; that of private training has no loss and no exact number of samples."""
        setting = self.known.setting
        if not privately:
            return performed(operation, self.space, setting.clients[0].id, arguments)
        self.space.setting = replace(setting, seed=fresh_seed())
        try:
            outcome = performed(operation, self.space, setting.clients[0].id, arguments)
        finally:
            self.space.setting = setting
        samples = {OWN: self.told.training.epochs * len(setting.clients[0].train)}
        return replace(outcome, loss=None, samples=samples)

    def readable(self) -> list[int]:
        """Return the numbers of the stored models that can be read."""
        return [number for number in sorted(self._numbers()) if self._found(number) is not None]

    def resolved(self, value: Any) -> Any:
        """Return arguments in which the models replace their numbers."""
        if isinstance(value, tuple):
            return tuple(map(self.resolved, value))
        if isinstance(value, Left):
            return self.stored(value.version)["model"]
        if isinstance(value, Mapping):
            return {name: tensor.to(self.space.device) for name, tensor in value.items()}
        return value

    def stored(self, number: int) -> dict[str, Any]:
        """Return a ``model`` and the ``state`` of its optimizer by their number; raise LostError if they are lost."""
        if number == INITIAL:
            return {"model": self.known.setting.initial_model(self._architecture), "state": {}}
        if (found := self._found(number)) is None:
            raise LostError(f"its model {number} does not exist or cannot be read.")
        return found

    def keep(self, model: Params, state: Params, travels: bool) -> Left:
        """Store a model with its optimizer's state, and return its number, with the model itself if it `travels`."""
        number = 1 + secrets.randbits(62)  # random, so a number is never used again after a loss
        content = {"settings": {"run": self.told.run}, "model": dict(model), "state": dict(state)}
        with private():
            checkpoint.save(self._file(number), content)
        self._here[number] = content
        return Left(number, model if travels else None)

    def forget_all_but(self, keep: list[int]) -> None:
        """Delete the models that the server no longer needs."""
        with private():
            for number in set(self._numbers()).difference(keep):
                self._file(number).unlink(missing_ok=True)
                self._here.pop(number, None)

    def _found(self, number: int) -> dict[str, Any] | None:
        """Return a stored model and its optimizer's state; None if it is missing, or, with a warning, damaged."""
        if number not in self._here:
            try:
                content = checkpoint.load(self._file(number), {"run": self.told.run}, self.space.device)
            except InputError as error:
                logger.warning("A stored model is lost: %s", error)
                return None
            if content is None:
                return None
            self._here[number] = content
        return self._here[number]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.pt"

    def _numbers(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.pt") if file.stem.isdecimal()]


class Member:
    """A client.

    Attributes:
        own: the settings of its file.
    """

    def __init__(self, file: Path) -> None:
        """Read the client's file; its samples are read when they are needed.

        Raises:
            InputError: if the file cannot be used.
        """
        with private():
            self.own = client_file.read(client_file.ClientFile, file)
        self._folder = file.resolve().parent
        self._kept = self._folder / self.own.kept / f"client-{self.own.client}"
        self._budget = Budget(self._kept / "privacy.json", self.own.epsilon)
        self._run: Participation | None = None

    def check(self) -> None:
        """Read, split and inspect the samples, so that errors and warnings appear when the client is started.

        Raises:
            InputError: if the architecture or the samples cannot be used.
        """
        client_file.check_architecture(self.own.architecture, f"Client {self.own.client}")
        found, indices = self._found[0], client_file.indices_of(self.own, self._found[0], 0)
        of_splits(found, {0: {self.own.client: indices}}, {}, self.own.source)

    def answer(self, kind: str, packet: Packet) -> Packet:
        """Return the reply to a message of a `kind`: the result, or a refusal with its reason as a sentence."""
        kinds = {"register": self._register, "begin": self._begin, "perform": self._perform, "end": self._end}
        kinds["note"] = self._note
        try:
            if kind not in kinds:
                raise InputError(f"the message {kind[:80]!r} does not exist; a client knows {', '.join(kinds)}.")
            return kinds[kind](packet)
        except LostError as error:
            return Packet({"lost": str(error)})
        except DivergedError as error:
            return Packet({"diverged": next(iter(error.found.values()), "it is NaN or infinite")})
        except InputError as error:
            return refusal(kind, error)

    def _register(self, packet: Packet) -> Packet:
        found, class_names, data = self._found
        parts = self._splits(value_of(Rule.of(Seed), packet.values.get("seed"), "the seed"))
        try:
            run = self._entered_before(packet)
        except InputError:  # the client does not know the run, or cannot read its files
            run = None
        return Packet(
            {
                "told": run is not None,
                "kept": [] if run is None else run.readable(),
                "last": 0 if run is None else run.last,
                "client": self.own.client,
                "name": self.own.name,
                "architecture": self.own.architecture,
                "sizes": [len(part) for part in parts],
                "shape": list(found.shape),
                "data": asdict(data),
                "classes": class_names,
                "versions": versions(),
                "fingerprint": fingerprint(found, self._folder / f".client-{self.own.client}-secret"),
            }
        )

    def _begin(self, packet: Packet) -> Packet:
        told = client_file.understood(Told, packet.values, "the server")
        self._budget.check_run(told.training.privacy)
        leaves = ", ".join(sorted(operations.exchanges(told.method))) or "only measures"
        public, own = packet.tensors.get("public", torch.empty(0)), self._found[0]
        scale = {name: each for name, each in packet.tensors.items() if name != "public"}
        _check_scale(scale, own)
        if public.dtype != own.inputs.dtype or tuple(public.shape[1:]) != own.shape:
            raise InputError(
                f"the public set has {described(public)}, but this client has {described(own.inputs)}. "
                "Bring images to one size with image, and texts to one length."
            )
        if own.vocabulary is not None:
            check_ids(public, own.vocabulary.size, "the public set")
        folder = self._place(told.run)
        content: dict[str, Any] = {
            "settings": {"run": told.run},
            "told": packet.values,
            "public": public,
            "scale": scale,
        }
        with private():
            for other in folder.parent.glob("*/told.pt"):  # one run at a time
                if other.parent != folder:
                    shutil.rmtree(other.parent)
            checkpoint.save(folder / "told.pt", content)
        self._run = self._entered(told, public, scale)
        logger.info("Run %s of %s starts: %s leave this client.", told.run[:6], told.method, leaves)
        self._run.take(told.number)
        return Packet({})

    def _perform(self, packet: Packet) -> Packet:
        run, values = self._entered_before(packet), packet.values
        name, keep, wanted = str(values.get("operation")), values.get("keep"), values.get("wanted") is True
        if not isinstance(keep, list) or not all(type(number) is int for number in keep):
            raise InputError("it does not list the models to keep.")
        run.take(packet.values.get("number"))
        arguments = run.resolved(given := unpacked(packet))
        operations.check_request(name, arguments, run.told.method, run.known)
        operations.check_sent(given, run.told.method)
        run.forget_all_but(keep)
        offer, operation = operations.find(name), operations.find(name).perform
        if type(number := values.get("state")) is int:
            operation, arguments = Resuming(operation), (run.stored(number)["state"], arguments)
        if name == "train_privately":
            self._budget.spend(run.told.training, len(run.known.setting.clients[0].train))
        outcome = run.performed(operation, arguments, name == "train_privately")
        value = outcome.value
        if offer.gives == "model":
            travels = operations.travels(run.told.method, wanted)
            value = run.keep(value, outcome.optimizer_state or {}, travels)
        answer = packed(value)
        loss = None if outcome.loss is None else float(outcome.loss)
        finite = None if outcome.finite is None else bool(outcome.finite)
        measured = {"loss": loss, "finite": finite, "samples": dict(outcome.samples)}
        return Packet({**answer.values, **measured}, answer.tensors)

    def _end(self, packet: Packet) -> Packet:
        run = self._entered_before(packet)
        model = run.resolved(given := (unpacked(packet),))
        if not operations.MODEL.holds(model[0], run.known):
            raise InputError("it names a final model that does not have the client's architecture.")
        operations.check_sent(given, run.told.method)
        folder = self._kept / f"{run.told.method}-seed-{run.told.seed}"
        with private():
            kept.save(folder, run.space.whole(self.own.client, model[0]), self._about(run), self._folder)
        logger.info("The run of %s has ended; this client's model is in %s.", run.told.method, folder)
        return Packet({})

    def _about(self, run: Participation) -> dict[str, Any]:
        """Return the facts about this client's model of a run, which `kept.load` reads."""
        told, known = run.told, replace(self._found[0], class_names=tuple(run.told.class_names))
        return {
            **{"method": told.method, "seed": told.seed, "rounds": told.rounds, "run": told.run},
            **{"client": self.own.client, "name": self.own.name, "architecture": self.own.architecture},
            **{"versions": versions()},
            **facts(known, told.classes, run.scale, Reading.of(self.own.image, self.own.text)),
        }

    def _note(self, packet: Packet) -> Packet:
        logger.warning("The server says: %s", printable(str(packet.values.get("text"))[:MOST]))
        return Packet({})

    @cached_property
    def _found(self) -> tuple[LabeledDataset, list[str], Data]:
        """The client's samples, the names of their classes, and the `Data` that the server compares."""
        with private():
            return client_file.samples(self.own, self._folder)

    def _splits(self, seed: int, scale: Standardization | None = None) -> tuple[LabeledDataset, ...]:
        with private():
            return client_file.splits(self.own, self._found[0], seed, scale)

    def _place(self, run: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{1,64}", run):
            raise InputError(f"{run[:80]!r} is not the name of a run.")
        return self._kept / run

    def _entered_before(self, packet: Packet) -> Participation:
        """Return the run that a message belongs to; it may have started before this process."""
        name = str(packet.values.get("run"))
        if self._run is None or self._run.told.run != name:
            place = self._place(name) / "told.pt"
            with private():
                content = checkpoint.load(place, {"run": name}, torch.device("cpu"))
            if content is None:
                raise LostError("it has no data of this run, or no longer has them.")
            told = client_file.understood(Told, content["told"], "told.pt")
            self._run = self._entered(told, content["public"], content["scale"])
        return self._run

    def _entered(self, told: Told, public: Tensor, scale: Mapping[str, Tensor]) -> Participation:
        if self.own.client not in told.clients:
            raise InputError(f"client {self.own.client} does not belong to the run, whose clients are {told.clients}.")
        standardization = Standardization(**scale) if scale else None
        train, validation, test = self._splits(told.seed, standardization)
        setting = Setting(
            clients=(Client(self.own.client, self.own.architecture, train, validation, test, self.own.name),),
            public=public,
            public_batch_size=len(public),
            classes=told.classes,
            build=partial(models.build, shape=self._found[0].shape, classes=told.classes),
            seed=told.seed,
            rounds=told.rounds,
            training=told.training,
            distillation=told.distillation,
            knowledge=told.knowledge,
            compute=Compute(device=self.own.device, **asdict(told.compute)),
        )
        setting.check()
        return Participation(told, setting, self._place(told.run), standardization)


def _check_scale(scale: Mapping[str, Tensor], own: LabeledDataset) -> None:
    """Check that the server sent a usable mean and standard deviation per channel if, and only if, samples need them.

    Raises:
        InputError: if it did not.
    """
    channels = (own.inputs.shape[1],) if own.kind.standardized else None
    shapes = [(name, tuple(each.shape)) for name, each in scale.items()]
    whole = shapes == ([] if channels is None else [("mean", channels), ("std", channels)])
    if not whole or not all(bool(each.isfinite().all()) for each in scale.values()):
        raise InputError("it did not send the mean and the standard deviation of each channel of the features.")
    if scale and not bool((scale["std"] > 0).all()):
        raise InputError("it sent a standard deviation that is not above 0.")


def answered(member: Member, message: bytes) -> bytes:
    """Return a client's reply to a message; after any error it is a refusal, and the client's log has the cause."""
    kind = "unknown"
    try:
        packet = from_bytes(message)
        kind = str(packet.values.pop("kind", kind))
        return to_bytes(member.answer(kind, packet))
    except InputError as error:
        return to_bytes(refusal(kind, error))
    except Exception as error:
        logger.exception("The message %r could not be answered.", kind)
        why = f"the client's program failed ({type(error).__name__}); its log has the details."
        return to_bytes(refusal(kind, InputError(why)))
