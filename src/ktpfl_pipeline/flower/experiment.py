"""An experiment of conf/ on real clients: from settings and public set to the federation of one method and seed.

The server has no private sample: what it knows of these is what clients say of themselves.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ktpfl_pipeline.config import schema
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.flower import operations
from ktpfl_pipeline.flower.alike import Arithmetic
from ktpfl_pipeline.flower.server import serve
from ktpfl_pipeline.flower.server.attendance import CHANGING, Hello, Link
from ktpfl_pipeline.flower.server.executor import RealExecutor, RealFederation
from ktpfl_pipeline.flower.server.serve import FederationFile
from ktpfl_pipeline.methods import find


@dataclass(frozen=True, eq=False)
class RealData:
    """What a server has of the data of real clients: the public set.

    Attributes:
        public: (M, ...), as clients' images.
        settings: that it was made with, as plain values.
        methods: all that are run on it, so that clients who do not fit the last are told before the first is trained.
    """

    public: Tensor
    settings: dict[str, Any]
    methods: tuple[str, ...] = ()
    pretrained: ClassVar[dict[str, dict[str, Tensor]]] = {}

    def plain(self) -> dict[str, Any]:
        """Return all of it as tensors and plain values."""
        return vars(self)


def read_public(experiment: schema.Experiment, folder: Path, methods: tuple[str, ...]) -> RealData:
    """Return the public set of an experiment on real clients, `methods` checked: before any is trained.

    Raises:
        InputError: if there is no such set, or a method was not tried on real clients.
    """
    for method in methods:
        operations.exchanges(method)
    public = serve.public_set(asked(experiment, methods[0], experiment.seeds[0]), folder)
    return RealData(public, experiment.of_data(), methods)


def meet(
    experiment: schema.Experiment, method: str, data: RealData, seed: int, folder: Path | None = None
) -> tuple[RealFederation, Facts]:
    """Return the federation of one method and seed with the clients that are there, and what is known of their data.

    Args:
        experiment: that is run.
        method: its name.
        data: what the server has.
        seed: of the run.
        folder: of the method's checkpoints, which remembers the clients, so that a run goes on without all of them;
            None remembers nobody.

    Raises:
        InputError: if they are not there in time, or do not go together, or with one of the methods.
    """
    file, place = asked(experiment, method, seed), experiment.compute.flower
    assert place is not None
    attendance = serve.met(file, data.public, link_of(place), place.patience, folder, others=True)
    check_architectures(data.methods, attendance.clients)
    return serve.federation(file, data.public, attendance), facts(data.public, attendance.clients)


def check_architectures(methods: Iterable[str], found: Mapping[int, Hello]) -> None:
    """Check for one architecture among the clients beside methods that combine their models.

    Raises:
        InputError: naming the methods, and who has what.
    """
    alike = [method for method in methods if find(method).kind.one_architecture]
    having: dict[str, list[int]] = {}
    for n, said in sorted(found.items()):
        having.setdefault(said.architecture, []).append(n)
    if alike and len(having) > 1:
        who = "; ".join(f"{name} of {', '.join(map(str, clients))}" for name, clients in having.items())
        raise InputError(
            f"The clients have several architectures ({who}), and methods that combine their models need one: leave "
            f"{', '.join(alike)} out of compare, or let all clients name one."
        )


def asked(experiment: schema.Experiment, method: str, seed: int) -> FederationFile:
    """Return what an experiment asks of one method and seed, as the server's file would say it."""
    alike = set(FederationFile.model_fields).intersection(schema.Experiment.model_fields)
    compute, patient = experiment.compute, serve.PATIENT.intersection(schema.Flower.model_fields)
    assert compute.flower is not None
    return FederationFile(
        method=method,
        hyperparameters=asdict(method_of(experiment, method)),
        seed=seed,
        compute=Arithmetic(**compute.model_dump(include=set(Arithmetic.model_fields))),
        **compute.model_dump(include={"device", "server_memory"}),
        **{name: getattr(experiment, name) for name in alike - {"compute", "hyperparameters"}},
        **compute.flower.model_dump(include=patient),
    )


def link_of(place: schema.Flower) -> Link:
    """Return messages to the clients of a place, the same for all methods and seeds of this process.

    Raises:
        InputError: if flwr is not installed here, or there is no SuperLink.
    """
    try:
        from ktpfl_pipeline.flower import connection
    except ModuleNotFoundError as error:
        raise InputError(
            f"compute.flower meets real clients by flwr, which is not installed here ({error.name}): run `make "
            "flower`, and give the command in .venv-flower."
        ) from error
    return connection.connected(place.superlink, place.certificate)


def facts(public: Tensor, found: Mapping[int, Hello]) -> Facts:
    """Return what is known of the clients' data: sizes, for labels stay with them."""
    said = sorted(found.values(), key=lambda one: one.client)
    sizes = torch.tensor([[sum(one.sizes)] for one in said])
    digest = hashlib.sha256(public.contiguous().numpy().data)
    digest.update(json.dumps([one.model_dump(exclude={"versions", *CHANGING}) for one in said]).encode())
    return Facts(
        label_counts=sizes,
        fingerprint=digest.hexdigest()[:16],
        shape=list(public.shape[1:]),
        native=[],
        samples=int(sizes.sum()),
        public=len(public),
        clients=len(said),
        classes=max(one.classes for one in said),
    )


def wire_of(fed: Federation) -> dict[str, list[int]]:
    """Return the bytes of packets that each client was sent and sent, ids ascending; nothing without real clients."""
    if not isinstance(fed.executor, RealExecutor):
        return {}
    return {name: [sizes[n] for n in fed.by_id] for name, sizes in fed.executor.attendance.wire.items()}
