"""The server's part of a run: its public set, the clients that it meets, and the federation that the engine runs on."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower.alike import Arithmetic, versions
from ktpfl_flower.client.client_file import understood
from ktpfl_flower.server.attendance import Attendance, Hello, Link
from ktpfl_flower.server.executor import RealExecutor, RealFederation
from ktpfl_flower.server.federation_file import Plan
from ktpfl_flower.wire import Packet
from ktpfl_pipeline import models
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.data.public import check_size
from ktpfl_pipeline.data.sources import Reading, adapt, load_public
from ktpfl_pipeline.methods import find

logger = logging.getLogger(__name__)


def public_set(plan: Plan) -> Tensor:
    """Return the public images, (M, C, H, W) uint8, in the federation's channels and size.

    Raises:
        InputError: if they cannot be read, are not images, or are fewer than a batch.
    """
    image, public = plan.experiment.image, plan.experiment.public
    images = load_public(public.source, "", plan.folder, Reading(None if image is None else image.shape[1:]))
    if not (kind := kinds.of(images)).pixels:
        raise InputError(f"{public.source} has {kind.name}, and real clients learn from images: take images.")
    check_size(len(images), public.batch)
    return images if image is None else adapt(images, image.shape)


def name_of(plan: Plan, method: str, seed: int, public: Tensor) -> str:
    """Return the name of a run, in hexadecimal digits: equal runs have equal names, whatever their server waits for."""
    settings = plan.experiment.shared()
    del settings["seeds"]
    return digest(
        {
            **settings,
            "compute": asdict(_arithmetic(plan)),
            "method": [method, asdict(method_of(plan.experiment, method))],
            "seed": seed,
            "public": hashlib.sha256(public.numpy().tobytes()).hexdigest(),
            "versions": versions(),
        }
    )


def met(plan: Plan, method: str, seed: int, public: Tensor, link: Link, folder: Path | None = None) -> Attendance:
    """Return the attendance of a run's clients, who have joined and fit together.

    Clients that are all there, but not as they are remembered, begin another run. Where some do not come in time, the
    run is that of the remembered clients.

    Args:
        plan: the server's file.
        method: that is run.
        seed: of the run.
        public: the public images; with the settings they name the run.
        link: to the clients.
        folder: where the clients of a run are remembered; None remembers none.

    Raises:
        InputError: if too few are there in time, two have one number, or one does not fit the server or the others.
    """
    name, file = name_of(plan, method, seed, public), plan.file
    attendance = Attendance(link, name, seed, file.deadline, file.on_unsound == "stop", file.class_names)
    place = None if folder is None else folder / name / "clients.pt"
    known = None if place is None else checkpoint.load(place, {"run": name}, torch.device("cpu"))
    said_before = {} if known is None else known["clients"]
    remembered = {int(n): understood(Hello, said, str(place)) for n, said in said_before.items()}
    attendance.meet(plan.clients, file.patience, remembered)
    if place is not None:
        clients = {n: asdict(said) for n, said in attendance.clients.items()}
        checkpoint.save(place, {"settings": {"run": name}, "clients": clients})
    return attendance


def check_architectures(methods: Iterable[str], clients: Mapping[int, Hello]) -> None:
    """Check that the clients have one architecture if a method combines their models.

    Raises:
        InputError: naming these methods, and the clients of each architecture.
    """
    alike = [method for method in methods if find(method).kind.one_architecture]
    having: dict[str, list[int]] = {}
    for n, said in sorted(clients.items()):
        having.setdefault(said.architecture, []).append(n)
    if alike and len(having) > 1:
        who = "; ".join(f"{name} of {', '.join(map(str, ns))}" for name, ns in having.items())
        raise InputError(
            f"The clients have several architectures ({who}), and methods that combine their models need one: leave "
            f"{', '.join(alike)} out of methods, or let all clients name one."
        )


def federation(plan: Plan, method: str, seed: int, public: Tensor, attendance: Attendance) -> RealFederation:
    """Return the federation of these clients, whose samples stay with them."""
    experiment, file = plan.experiment, plan.file
    clients = sorted(attendance.clients.values(), key=lambda said: said.client)
    classes = len(class_names(plan, attendance))
    return RealFederation(
        clients=tuple(map(_shell, clients)),
        public=public,
        public_batch_size=experiment.public.batch,
        classes=classes,
        build=partial(models.build, shape=tuple(public.shape[1:]), classes=classes),
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
    """Return the names of the federation's classes, of which each client's begin the list."""
    return max([plan.file.class_names, *(said.classes for said in attendance.clients.values())], key=len)


def facts(plan: Plan, public: Tensor, attendance: Attendance) -> Facts:
    """Return what is known of the clients' data: the sizes; their labels stay with them."""
    clients = sorted(attendance.clients.values(), key=lambda said: said.client)
    sizes = torch.tensor([[sum(one.sizes)] for one in clients])
    said = [{name: value for name, value in one.lasting().items() if name != "versions"} for one in clients]
    return Facts(
        label_counts=sizes,
        fingerprint=digest({"public": hashlib.sha256(public.numpy().tobytes()).hexdigest(), "clients": said}),
        shape=list(public.shape[1:]),
        kind=kinds.of(public).name,
        native=[],
        samples=int(sizes.sum()),
        public=len(public),
        clients=len(clients),
        classes=len(names := class_names(plan, attendance)),
        class_names=None if names == [str(label) for label in range(len(names))] else tuple(names),
    )


def _arithmetic(plan: Plan) -> Arithmetic:
    return Arithmetic(**{each.name: getattr(plan.experiment.compute, each.name) for each in fields(Arithmetic)})


def _shell(said: Hello) -> Client:
    """Return a client whose samples are elsewhere: reading one of them fails."""

    def split(size: int) -> LabelledDataset:
        inputs = torch.empty(size, *said.shape, dtype=kinds.IMAGES.dtype, device="meta")
        return LabelledDataset(inputs, torch.empty(size, dtype=torch.int64, device="meta"))

    train, validation, test = map(split, said.sizes)
    return Client(said.client, said.architecture, train, validation, test, said.name)


def _begin(plan: Plan, method: str, setting: Setting) -> Packet:
    """Return what clients are told before the first round."""
    experiment = plan.experiment
    said: dict[str, Any] = {name: plain(getattr(experiment, name)) for name in ("rounds", "training", "distillation")}
    said |= {"method": method, "seed": setting.seed, "compute": asdict(_arithmetic(plan))}
    return Packet({**said, "classes": setting.classes, "clients": list(setting.by_id)}, {"public": setting.public})
