"""The server: from its own file and the clients that are there to a run of the engine, and what came of it."""

import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.config import recipes
from ktpfl_pipeline.config.schema import Distillation, Image, Knowledge, Public, Training
from ktpfl_pipeline.config.values import Count, Seed, Settings
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.knowledge import settings as knowledge
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.core.setting import Client, Compute, Setting
from ktpfl_pipeline.data.public import check_size
from ktpfl_pipeline.data.sources import adapt, load_public
from ktpfl_pipeline.flower import operations
from ktpfl_pipeline.flower.client_file import understood, values_of
from ktpfl_pipeline.flower.executor import Link, RealExecutor, RealFederation, check_answered
from ktpfl_pipeline.flower.member import Arithmetic, versions
from ktpfl_pipeline.flower.shells import shell
from ktpfl_pipeline.flower.wire import Packet

logger = logging.getLogger(__name__)


class FederationFile(Settings):
    """What stands in the server's file; groups are as in an experiment.

    Attributes:
        method: its name in the registry.
        hyperparameters: of the method.
        clients: how many are waited for.
        device: where the server computes.
        results: the folder of what comes of it, from the file's own.
    """

    method: str
    hyperparameters: dict[str, Any] = Field({})
    clients: Count
    seed: Seed = 0
    rounds: Count = 30
    evaluate_every: Count = 1
    participation: float = Field(1.0, gt=0, le=1)
    on_divergence: Literal["stop", "skip", "restore"] = "stop"
    public: Public
    image: Image | None = None
    training: Training = Training()
    distillation: Distillation = Distillation()
    knowledge: Knowledge = Knowledge()
    compute: Arithmetic = Arithmetic()
    device: str = "auto"
    results: str = "results"


class Hello(Settings):
    """What a client says of itself."""

    client: int = Field(ge=0)
    name: str = Field(max_length=100)
    architecture: str = Field(max_length=200)
    sizes: list[int] = Field(min_length=3, max_length=3)
    shape: list[int] = Field(min_length=1, max_length=4)
    classes: Count
    versions: dict[str, str]


def read(path: Path) -> FederationFile:
    """Return what stands in the server's file.

    Raises:
        InputError: if it cannot be read, says something else, or asks for what real clients do not offer.
    """
    asked = understood(FederationFile, values_of(path), str(path))
    operations.exchanges(asked.method)
    if asked.training.privacy is not None:
        raise InputError(
            f"{path} has training.privacy, whose noise comes from the run's seed, which every client knows: it studies "
            "what privacy costs, and protects nobody. Leave it out."
        )
    return asked


def run(path: Path, link: Link) -> engine.Run:
    """Run a federation of real clients to its end.

    Args:
        path: the server's file; beside the rounds that are told in the log, `results` has them as JSON, live.
        link: to the clients.

    Raises:
        InputError: if the file, the clients and the public set do not go together, or a client fails.
    """
    asked = read(path)
    method = methods.create(asked.method, asked.hyperparameters)
    public = public_set(asked, path.resolve().parent)
    found = met(link, asked.clients, asked.seed)
    fed = federation(asked, public, found, link)
    executor = fed.executor
    assert isinstance(executor, RealExecutor)
    folder = path.resolve().parent / asked.results
    folder.mkdir(parents=True, exist_ok=True)
    history: list[RoundRecord] = []

    def told(record: RoundRecord) -> None:
        history.append(record)
        accuracy = record.accuracy.get("after_transfer", [])
        reached = f": {mean(accuracy):.1%} on average" if accuracy else ""
        logger.info("Round %d of %d%s.", record.round, asked.rounds, reached)
        content = {"method": asked.method, "history": [asdict(one) for one in history], "wire": asdict(executor.wire)}
        (folder / "history.json").write_text(json.dumps(content))

    schedule = engine.Schedule(asked.rounds, asked.participation, asked.evaluate_every)
    with closing(executor):
        done = engine.run(method, fed, schedule, observer=engine.Observer(round=told))
        executor.end(method.personal(done.state, fed.by_id, fed))
    if done.coefficients is not None:
        (folder / "coefficients.json").write_text(json.dumps(done.coefficients[-1].tolist()))
    return done


def public_set(asked: FederationFile, folder: Path) -> Tensor:
    """Return the public images, (M, ...), in the federation's channels and size.

    Raises:
        InputError: if they would be part of private ones, cannot be read, or are too few.
    """
    if asked.public.source in ("open_part", "included"):
        raise InputError(
            f"public.source is {asked.public.source!r}, and the server has no private images of which that is a part: "
            "give it images of its own, as in public: {source: npz:public.npz}."
        )
    size = None if asked.image is None else asked.image.shape[1:]
    images = load_public(asked.public.source, "", folder, size)
    if images.dtype != torch.uint8:
        raise InputError(f"{asked.public.source} has features, and real clients learn from images: take images.")
    check_size(len(images), asked.public.batch)
    return images if asked.image is None else adapt(images, asked.image.shape)


def met(link: Link, clients: int, seed: int) -> dict[int, Hello]:
    """Return what the clients say of themselves, by address, having checked that they go together.

    Raises:
        InputError: if two have one number, or one has other versions or images than the server or the others.
    """
    found: dict[int, Hello] = {}
    hello = Packet({"seed": seed})
    for address, packet in link.ask("hello", dict.fromkeys(link.addresses(clients), hello)):
        check_answered(f"The client at node {address}", "hello", packet)
        said = understood(Hello, packet.values, f"The client at node {address}")
        who = f"Client {said.client} (node {address})"
        if others := [n for n, other in found.items() if other.client == said.client]:
            raise InputError(f"{who} and node {others[0]} have one number: give each client's file another.")
        if (ours := versions()) != said.versions:
            raise InputError(f"{who} has {said.versions}, and the server {ours}: install the same.")
        if min(said.sizes) < 0 or (first := next(iter(found.values()), said)).shape != said.shape:
            raise InputError(f"{who} has images of shape {said.shape}, and others {first.shape}: set its image.")
        found[address] = said
    return found


def federation(asked: FederationFile, public: Tensor, found: Mapping[int, Hello], link: Link) -> RealFederation:
    """Return the federation of these clients, whose samples are elsewhere."""
    clients = tuple(_shell(said) for said in sorted(found.values(), key=lambda said: said.client))
    classes = max(said.classes for said in found.values())
    shape = tuple(public.shape[1:])
    run = secrets.token_hex(8)
    executor = RealExecutor(
        link,
        {said.client: address for address, said in found.items()},
        run,
        asked.method,
        lambda setting: _begin(asked, setting, run),
    )
    return RealFederation(
        clients=clients,
        public=public,
        public_batch_size=asked.public.batch,
        classes=classes,
        build=partial(models.build, shape=shape, classes=classes),
        seed=asked.seed,
        rounds=asked.rounds,
        training=recipes.local_training(asked.training),
        distillation=recipes.distillation(asked.distillation),
        compute=Compute(device=asked.device, **asked.compute.model_dump()),
        public_transport=asked.public.transport,
        on_divergence=asked.on_divergence,
        knowledge=knowledge.Knowledge(**asked.knowledge.model_dump()),
        executor=executor,
    )


def _shell(said: Hello) -> Client:
    train, validation, test = said.sizes
    return shell(said.client, said.architecture, (train, validation, test), tuple(said.shape), torch.uint8, said.name)


def _begin(asked: FederationFile, setting: Setting, run: str) -> Packet:
    """Return what clients are told before the first round."""
    told = {
        "run": run,
        "method": asked.method,
        "seed": asked.seed,
        "rounds": asked.rounds,
        "classes": setting.classes,
        "clients": list(setting.by_id),
        "training": asked.training.model_dump(mode="json"),
        "distillation": asked.distillation.model_dump(mode="json"),
        "compute": asked.compute.model_dump(mode="json"),
    }
    return Packet(told, {"public": setting.public})
