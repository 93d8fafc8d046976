"""One client of a real federation, as the server's messages find it: its samples, its models, and what it answers.

It answers ``hello`` (who it is), ``begin`` (a run's settings and public set), ``perform`` (one operation of the table)
and ``end`` (which model is its own now). What it kept is on its disk, so it may be stopped between any two of these.
"""

import logging
import re
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower import operations
from ktpfl_flower.alike import versions
from ktpfl_flower.client import client_file
from ktpfl_flower.client.participation import Participation, Told
from ktpfl_flower.client.private import private, refusal, seal
from ktpfl_flower.wire import Packet, packed, unpacked
from ktpfl_pipeline import models
from ktpfl_pipeline.core.client.outcome import performed
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import DivergedError, InputError, LostError
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.settings import Compute

logger = logging.getLogger(__name__)


class Member:
    """A client.

    Attributes:
        own: its file.
    """

    def __init__(self, file: Path) -> None:
        """Read its file; its samples are read when they are needed.

        Raises:
            InputError: if the file cannot be used.
        """
        with private():
            self.own = client_file.read(file)
        self._folder = file.resolve().parent
        self._found: LabelledDataset | None = None
        self._class_names: list[str] = []
        self._run: Participation | None = None

    def check(self) -> None:
        """Read the samples and split them, so that who starts this client sees at once what the server would see.

        Raises:
            InputError: if architecture or samples cannot be used.
        """
        client_file.check_architecture(self.own.architecture, f"Client {self.own.client}")
        self._splits(0)

    def answer(self, kind: str, packet: Packet) -> Packet:
        """Return the answer to a message of a `kind`: what is asked for, or why not, as a sentence."""
        kinds = {"hello": self._hello, "begin": self._begin, "perform": self._perform, "end": self._end}
        try:
            if kind not in kinds:
                raise InputError(f"{kind[:80]!r} is no message that a client knows: it knows {', '.join(kinds)}.")
            answer = kinds[kind](packet)
        except LostError as error:
            answer = Packet({"lost": str(error)})
        except DivergedError as error:
            answer = Packet({"diverged": next(iter(error.found.values()), "it is not finite")})
        except InputError as error:
            answer = refusal(kind, error)
        return Packet({**answer.values, "number": packet.values.get("number")}, answer.tensors)

    def _hello(self, packet: Packet) -> Packet:
        parts, found = self._splits(_seed(packet)), self._samples()
        try:
            run = self._entered_before(packet)
        except InputError:  # it knows nothing of it, or cannot read what it knew
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
                "classes": self._class_names,
                "versions": versions(),
                "seal": seal(self._samples(), self._folder / f".client-{self.own.client}-secret"),
            }
        )

    def _begin(self, packet: Packet) -> Packet:
        told = client_file.understood(Told, _without_number(packet), "the server")
        leaves = ", ".join(sorted(operations.exchanges(told.method))) or "measures alone"
        public = packet.tensors.get("public", torch.empty(0))
        if public.dtype != self._samples().inputs.dtype or tuple(public.shape[1:]) != self._samples().shape:
            raise InputError(
                f"the public set has {public.dtype} of shape {tuple(public.shape[1:])}, and this client's images are "
                f"{self._samples().shape} in bytes: bring both to one size with image."
            )
        folder = self._place(told.run)
        told_of: dict[str, Any] = {"settings": {"run": told.run}, "told": _without_number(packet), "public": public}
        with private():
            for other in folder.parent.glob("*/told.pt"):  # one run at a time
                if other.parent != folder:
                    shutil.rmtree(other.parent)
            checkpoint.save(folder / "told.pt", told_of)
        self._run = self._entered(told, public)
        logger.info("Run %s of %s begins: %s leave this client.", told.run[:6], told.method, leaves)
        self._run.take(packet.values.get("number"))
        return Packet({})

    def _perform(self, packet: Packet) -> Packet:
        run, values = self._entered_before(packet), packet.values
        name, keep, wanted = str(values.get("operation")), values.get("keep"), values.get("wanted") is True
        if not isinstance(keep, list) or not all(type(number) is int for number in keep):
            raise InputError("it says not which models are kept.")
        operations.check_leaves(name, run.told.method)
        run.take(packet.values.get("number"))
        arguments = run.resolved(given := unpacked(packet))
        operations.check_arguments(name, arguments, run.known)
        operations.check_sent(given, run.told.method)
        run.forget_all_but(keep)
        offer = operations.find(name)
        outcome = performed(offer.perform, run.space, self.own.client, arguments)
        value = outcome.value
        travels = offer.gives == "model" and wanted and "parameters" in operations.exchanges(run.told.method)
        if isinstance(value, tuple):
            value = (run.keep(value[0], travels), *(run.keep(part, False) for part in value[1:]))
        else:
            value = run.keep(value, travels)
        answer = packed(value)
        loss = None if outcome.loss is None else float(outcome.loss)
        finite = None if outcome.finite is None else bool(outcome.finite)
        beside = {"loss": loss, "finite": finite, "samples": dict(outcome.samples)}
        return Packet({**answer.values, **beside}, answer.tensors)

    def _end(self, packet: Packet) -> Packet:
        run = self._entered_before(packet)
        model = run.resolved(given := (unpacked(packet),))
        if not operations.MODEL.holds(model[0], run.known):
            raise InputError("it says that the client's own model is one that is not of its architecture.")
        operations.check_sent(given, run.told.method)
        file = run.folder.parent / "model.pt"
        with private(), replacing(file, f"The model {file}") as beside:
            torch.save({name: tensor.cpu() for name, tensor in model[0].items()}, beside)
        logger.info("The run has ended; this client's model is in %s.", file)
        return Packet({})

    def _samples(self) -> LabelledDataset:
        if self._found is None:
            with private():
                self._found, self._class_names = client_file.samples(self.own, self._folder)
        return self._found

    def _splits(self, seed: int) -> tuple[LabelledDataset, ...]:
        with private():
            return client_file.splits(self.own, self._samples(), seed)

    def _place(self, run: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{1,64}", run):
            raise InputError(f"{run[:80]!r} is no name of a run.")
        return self._folder / self.own.kept / f"client-{self.own.client}" / run

    def _entered_before(self, packet: Packet) -> Participation:
        """Return the run that a message belongs to, which may have begun before this process did."""
        name = str(packet.values.get("run"))
        if self._run is None or self._run.told.run != name:
            place = self._place(name) / "told.pt"
            with private():
                content = checkpoint.load(place, {"run": name}, torch.device("cpu"))
            if content is None:
                raise LostError("it knows nothing of this run, or not any more.")
            self._run = self._entered(client_file.understood(Told, content["told"], "told.pt"), content["public"])
        return self._run

    def _entered(self, told: Told, public: Tensor) -> Participation:
        if self.own.client not in told.clients:
            raise InputError(f"client {self.own.client} is not among those of the run, {told.clients}.")
        me, shape = self.own.client, self._samples().shape
        train, validation, test = self._splits(told.seed)
        mine = Client(me, self.own.architecture, train, validation, test, self.own.name)
        space = Setting(
            clients=(mine,),
            public=public,
            public_batch_size=len(public),
            classes=told.classes,
            build=partial(models.build, shape=shape, classes=told.classes),
            seed=told.seed,
            rounds=told.rounds,
            training=told.training,
            distillation=told.distillation,
            compute=Compute(device=self.own.device, **asdict(told.compute)),
        )
        return Participation(told, space, me, self._place(told.run))


def _seed(packet: Packet) -> int:
    seed = packet.values.get("seed")
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InputError(f"the seed {str(seed)[:40]} is no number from 0 to 2**63 - 1.")
    return seed


def _without_number(packet: Packet) -> dict[str, Any]:
    return {name: value for name, value in packet.values.items() if name != "number"}
