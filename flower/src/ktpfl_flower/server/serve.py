"""The server's part of a run: its public set, the registration of clients, and the federation for the engine."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower.alike import Arithmetic, Data, prepared, versions
from ktpfl_flower.client.client_file import understood
from ktpfl_flower.server.attendance import Attendance, Link
from ktpfl_flower.server.executor import RealExecutor, RealFederation
from ktpfl_flower.server.federation_file import Plan
from ktpfl_flower.server.registration import Registration
from ktpfl_flower.wire import Packet
from ktpfl_pipeline import models
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabelledDataset, Shape, TokenShape
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.data.public import check_size
from ktpfl_pipeline.data.sources import Reading, load_with_vocabulary
from ktpfl_pipeline.methods import find

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PublicSet:
    """The public samples of a federation.

    Attributes:
        inputs: images, (M, C, H, W) uint8, or tokens, (M, L) int64.
        data: their kind, and what the ids of tokens mean.
    """

    inputs: Tensor
    data: Data

    @property
    def shape(self) -> Shape:
        """Shape of one sample; a `TokenShape` for tokens."""
        if (known := self.data.vocabulary) is None:
            return tuple(self.inputs.shape[1:])
        return TokenShape(self.inputs.shape[1:], known.size, known.padding)

    @property
    def named(self) -> dict[str, Any]:
        """Fingerprints of the samples and of their vocabulary, for the names of runs."""
        words = {} if self.data.vocabulary is None else {"vocabulary": asdict(self.data.vocabulary)}
        return {"public": hashlib.sha256(self.inputs.numpy().tobytes()).hexdigest(), **words}


def public_set(plan: Plan) -> PublicSet:
    """Return the public samples, images in the federation's channels and size.

    Raises:
        InputError: if they cannot be read, are fewer than a batch, or real clients cannot use them; see `prepared`.
    """
    image, public = plan.experiment.image, plan.experiment.public
    reading = Reading(None if image is None else image.shape[1:], text=plan.experiment.text)
    inputs, known = load_with_vocabulary(public.source, plan.folder, reading)
    check_size(len(inputs), public.batch)
    return PublicSet(*prepared(inputs, known, public.source, image))


def name_of(plan: Plan, method: str, seed: int, public: PublicSet) -> str:
    """Return the name of a run, in hexadecimal digits; it does not depend on how long the server waits."""
    settings = plan.experiment.shared()
    del settings["seeds"]
    return digest(
        {
            **settings,
            "compute": asdict(_arithmetic(plan)),
            "method": [method, asdict(method_of(plan.experiment, method))],
            "seed": seed,
            **public.named,
            "versions": versions(),
        }
    )


def met(plan: Plan, method: str, seed: int, public: PublicSet, link: Link, folder: Path | None = None) -> Attendance:
    """Return the attendance of a run's clients, which have registered and fit together.

    If all clients register, but some have changed since an earlier start, another run starts. If some do not register
    in time, the run of the earlier start continues.

    Args:
        plan: the plan in the server's file.
        method: the name of the method.
        seed: of the run.
        public: the public set; it and the settings determine the name of the run.
        link: to the clients.
        folder: where the registrations of a run are stored; None: nowhere.

    Raises:
        InputError: if too few register in time, two have the same number, or one does not fit the server or the others.
    """
    name = name_of(plan, method, seed, public)
    attendance = Attendance(link, name, seed, plan, public.data)
    place = None if folder is None else folder / name / "clients.pt"
    known = None if place is None else checkpoint.load(place, {"run": name}, torch.device("cpu"))
    said_before = {} if known is None else known["clients"]
    remembered = {int(n): understood(Registration, said, str(place)) for n, said in said_before.items()}
    attendance.meet(remembered)
    if place is not None:
        clients = {n: asdict(said) for n, said in attendance.clients.items()}
        checkpoint.save(place, {"settings": {"run": name}, "clients": clients})
    return attendance


def check_architectures(methods: Iterable[str], clients: Mapping[int, Registration]) -> None:
    """Check that the clients have the same architecture if a method combines their models.

    Raises:
        InputError: naming these methods, and the clients with each architecture.
    """
    alike = [method for method in methods if find(method).kind.one_architecture]
    having: dict[str, list[int]] = {}
    for n, said in sorted(clients.items()):
        having.setdefault(said.architecture, []).append(n)
    if alike and len(having) > 1:
        who = "; ".join(f"{name}: {', '.join(map(str, ns))}" for name, ns in having.items())
        raise InputError(
            f"The clients have several architectures ({who}), but some methods combine their models. Remove "
            f"{', '.join(alike)} from methods, or set the same architecture in all clients' files."
        )


def federation(plan: Plan, method: str, seed: int, public: PublicSet, attendance: Attendance) -> RealFederation:
    """Return the federation of these clients; their samples stay at the clients."""
    experiment, file = plan.experiment, plan.file
    clients = sorted(attendance.clients.values(), key=lambda said: said.client)
    classes = len(class_names(plan, attendance))
    return RealFederation(
        clients=tuple(map(_shell, clients)),
        public=public.inputs,
        public_batch_size=experiment.public.batch,
        classes=classes,
        build=partial(models.build, shape=public.shape, classes=classes),
        seed=seed,
        rounds=experiment.rounds,
        training=experiment.training,
        distillation=experiment.distillation,
        compute=experiment.compute,
        public_transport=experiment.public.transport,
        on_divergence=experiment.on_divergence,
        knowledge=experiment.knowledge,
        executor=RealExecutor(attendance, method, partial(_begin, plan, method), file.quorum, file.tries),
    )


def class_names(plan: Plan, attendance: Attendance) -> list[str]:
    """Return the names of the federation's classes: the longest list, which starts with each client's list."""
    return max([plan.file.class_names, *(said.classes for said in attendance.clients.values())], key=len)


def facts(plan: Plan, public: PublicSet, attendance: Attendance) -> Facts:
    """Return the facts about the clients' data that the server knows: sizes, but not labels."""
    clients = sorted(attendance.clients.values(), key=lambda said: said.client)
    sizes = torch.tensor([[sum(one.sizes)] for one in clients])
    said = [{name: value for name, value in one.lasting().items() if name != "versions"} for one in clients]
    return Facts(
        label_counts=sizes,
        fingerprint=digest({**public.named, "clients": said}),
        shape=list(public.shape),
        kind=public.data.kind,
        native=[],
        samples=int(sizes.sum()),
        public=len(public.inputs),
        clients=len(clients),
        classes=len(names := class_names(plan, attendance)),
        class_names=None if names == [str(label) for label in range(len(names))] else tuple(names),
    )


def _arithmetic(plan: Plan) -> Arithmetic:
    return Arithmetic(**{each.name: getattr(plan.experiment.compute, each.name) for each in fields(Arithmetic)})


def _shell(said: Registration) -> Client:
    """Return a client without its samples: tensors on the device `meta`, which cannot be read."""

    def split(size: int) -> LabelledDataset:
        inputs = torch.empty(size, *said.shape, dtype=kinds.KINDS[said.data.kind].dtype, device="meta")
        return LabelledDataset(inputs, torch.empty(size, dtype=torch.int64, device="meta"))

    train, validation, test = map(split, said.sizes)
    return Client(said.client, said.architecture, train, validation, test, said.name)


def _begin(plan: Plan, method: str, setting: Setting) -> Packet:
    """Return the message with which a run starts at a client."""
    experiment = plan.experiment
    said: dict[str, Any] = {name: plain(getattr(experiment, name)) for name in ("rounds", "training", "distillation")}
    said |= {"method": method, "seed": setting.seed, "compute": asdict(_arithmetic(plan))}
    return Packet({**said, "classes": setting.classes, "clients": list(setting.by_id)}, {"public": setting.public})
