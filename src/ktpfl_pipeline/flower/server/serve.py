"""The server: from its own file and the clients that are there to a run of the engine, and what came of it."""

import hashlib
import json
import logging
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
from ktpfl_pipeline.core import engine, kinds
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import AbsentError, InputError, LostError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.knowledge import settings as knowledge
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import RoundRecord, mean
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Compute, Setting
from ktpfl_pipeline.core.simulation.reliability import Reliability
from ktpfl_pipeline.data.public import check_size
from ktpfl_pipeline.data.sources import adapt, load_public
from ktpfl_pipeline.flower import operations
from ktpfl_pipeline.flower.alike import Arithmetic, versions
from ktpfl_pipeline.flower.client.client_file import understood, values_of
from ktpfl_pipeline.flower.server.attendance import Attendance, Hello, Link, absent
from ktpfl_pipeline.flower.server.executor import RealExecutor, RealFederation
from ktpfl_pipeline.flower.wire import Packet

logger = logging.getLogger(__name__)
PATIENT = {"deadline", "quorum", "tries", "on_unsound", "results", "device", "server_memory"}
"""Settings that may be others when a run is taken up again."""


class FederationFile(Settings):
    """What stands in the server's file; groups are as in an experiment.

    Attributes:
        method: its name in the registry.
        hyperparameters: of the method.
        clients: how many are waited for.
        deadline: seconds in which each phase of a round is answered; who is later sits the round out. Longer than the
            slowest client trains, and as short as others may wait for one that hangs.
        quorum: the share of a round's cohort without which it is given up: more than half, so that it stays a
            federation, and less than all, or one client stops it.
        tries: how often a round without a quorum is begun, each time waiting for a deadline, before the run ends.
        on_unsound: whether a client whose answer cannot be used, or who refuses, sits the round out, ``skip``, or ends
            the run, ``stop``.
        on_divergence: as in an experiment; here a client that diverges sits out, as others' runs hang on it.
        device: where the server computes.
        server_memory: MiB that the coefficients' arithmetic may take there.
        results: the folder of what comes of it, from the file's own.
    """

    method: str
    hyperparameters: dict[str, Any] = Field({})
    clients: Count
    seed: Seed = 0
    rounds: Count = 30
    evaluate_every: Count = 1
    participation: float = Field(1.0, gt=0, le=1)
    deadline: float = Field(600, gt=0)
    quorum: float = Field(0.6, ge=0, le=1)
    tries: Count = 3
    on_unsound: Literal["skip", "stop"] = "skip"
    on_divergence: Literal["stop", "skip", "restore"] = "skip"
    public: Public
    image: Image | None = None
    training: Training = Training()
    distillation: Distillation = Distillation()
    knowledge: Knowledge = Knowledge()
    compute: Arithmetic = Arithmetic()
    device: str = "auto"
    server_memory: Count = 512
    results: str = "results"


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


def run(path: Path, link: Link, patience: float = 600.0) -> engine.Run:
    """Run a federation of real clients to its end, from the last checkpoint where there is one.

    Args:
        path: the server's file; beside the rounds that are told in the log, `results` has them as JSON, live.
        link: to the clients.
        patience: seconds in which all clients must be there before the first round.

    Raises:
        InputError: if the file, the clients and the public set do not go together, or too few clients are left; of the
            first round, if one is not there.
    """
    asked = read(path)
    method = methods.create(asked.method, asked.hyperparameters)
    folder = path.resolve().parent / asked.results
    public = public_set(asked, path.resolve().parent)
    attendance = met(asked, public, link, patience, folder)
    fed = federation(asked, public, attendance)
    history: list[RoundRecord] = []

    def told(record: RoundRecord) -> None:
        history.append(record)
        accuracy = record.accuracy.get("after_transfer", [])
        reached = f": {mean(accuracy):.1%} on average" if accuracy else ""
        logger.info("Round %d of %d%s.", record.round, asked.rounds, reached)
        wire = {} if resumed else attendance.wire
        content = {"method": asked.method, "history": [asdict(one) for one in history], "wire": wire}
        written(folder / "history.json", json.dumps(content))

    schedule = engine.Schedule(asked.rounds, asked.participation, asked.evaluate_every)
    file = folder / attendance.run / "checkpoint.pt"
    resumed = file.exists()  # the bytes of the rounds before are not known any more
    with closing(fed.executor):
        if not resumed:
            begin(fed)
        done = engine.run(
            method,
            fed,
            schedule,
            settings={"run": attendance.run},
            checkpoint_file=file,
            observer=engine.Observer(round=told),
        )
        end(method, done.state, fed)
    if done.coefficients is not None:
        written(folder / "coefficients.json", json.dumps(done.coefficients[-1].tolist()))
    return done


def begin(fed: RealFederation) -> None:
    """Tell the clients of the federation before its first round.

    Raises:
        InputError: if one is not there, or refuses.
    """
    fed.executor.start(fed)
    if out := absent(fed.executor.attendance, fed.by_id):
        raise InputError(
            f"{AbsentError(out)} Before the first round all clients are needed: see to its program, start it again if "
            "it has ended, and give the same command again, which takes what is finished as it is."
        )


def end(method: Method[Any], state: Any, fed: RealFederation) -> None:
    """Let each client that is there keep its own model, and tell who is not."""
    missing = _missing_at_end(fed)
    for n in sorted(fed.executor.bare):
        logger.warning("Client %d has lost the model that was its own: what an end told it before stays.", n)
    there = [n for n in fed.by_id if n not in missing and n not in fed.executor.bare]
    while there:
        try:
            fed.executor.end(method.personal(state, there, fed))
            break
        except AbsentError as error:
            missing |= error.found
            there = [n for n in there if n not in missing]
    for n, why in missing.items():
        logger.warning("Client %d %s: start it, and give the same command again, to let it keep its model.", n, why)


def _missing_at_end(fed: RealFederation) -> dict[int, str]:
    """Return who is not there; who has come back without its models is asked for them, and tells that they are gone."""
    while True:
        try:
            return fed.executor.missing(fed, list(fed.by_id), 0, fed.rounds + 1)
        except LostError as error:
            logger.warning("%s", str(error).partition(":")[0])


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
    if not (kind := kinds.of(images)).pixels:
        raise InputError(f"{asked.public.source} has {kind.name}, and real clients learn from images: take images.")
    check_size(len(images), asked.public.batch)
    return images if asked.image is None else adapt(images, asked.image.shape)


def met(
    asked: FederationFile,
    public: Tensor,
    link: Link,
    patience: float = 600.0,
    folder: Path | None = None,
    others: bool = False,
) -> Attendance:
    """Return the attendance of a run's clients, which are there and go together.

    Args:
        asked: the server's file.
        public: the public images; with the file they name the run.
        link: to the clients.
        patience: seconds in which all must be there, where the run is not begun yet.
        folder: where it is remembered whose run it is; None for nowhere.
        others: whether clients that are all there, but not as they are remembered, begin another run: what is
            remembered then counts for those that do not come in time. Else none but the remembered are let in.

    Raises:
        InputError: if two have one number, or one has other versions or images than the server or the others.
    """
    image_sum = hashlib.sha256(public.numpy().tobytes()).hexdigest()
    name = digest({**asked.model_dump(mode="json", exclude=PATIENT), "public": image_sum, "versions": versions()})
    attendance = Attendance(link, name, asked.seed, asked.deadline, asked.on_unsound == "stop")
    file = None if folder is None else folder / name / "clients.pt"
    known = None if file is None else checkpoint.load(file, {"run": name}, torch.device("cpu"))
    said_before = {} if known is None else known["clients"]
    remembered = {int(n): understood(Hello, said, str(file)) for n, said in said_before.items()}
    if remembered and not others:
        attendance.resume(remembered)
        return attendance
    attendance.meet(asked.clients, patience, remembered)
    if file is not None:
        clients = {n: said.model_dump(mode="json") for n, said in attendance.clients.items()}
        checkpoint.save(file, {"settings": {"run": name}, "clients": clients})
    return attendance


def federation(asked: FederationFile, public: Tensor, attendance: Attendance) -> RealFederation:
    """Return the federation of these clients, whose samples are elsewhere."""
    found = sorted(attendance.clients.values(), key=lambda said: said.client)
    classes = max(said.classes for said in found)
    shape = tuple(public.shape[1:])
    return RealFederation(
        clients=tuple(map(_shell, found)),
        public=public,
        public_batch_size=asked.public.batch,
        classes=classes,
        build=partial(models.build, shape=shape, classes=classes),
        seed=asked.seed,
        rounds=asked.rounds,
        training=recipes.local_training(asked.training),
        distillation=recipes.distillation(asked.distillation),
        compute=Compute(device=asked.device, server_memory=asked.server_memory, **asked.compute.model_dump()),
        public_transport=asked.public.transport,
        on_divergence=asked.on_divergence,
        reliability=Reliability(quorum=asked.quorum, tries=asked.tries),
        knowledge=knowledge.Knowledge(**asked.knowledge.model_dump()),
        executor=RealExecutor(attendance, asked.method, partial(_begin, asked)),
    )


def _shell(said: Hello) -> Client:
    """Return a client whose samples are elsewhere: who asks for one gets torch's error, or a refusal."""

    def split(size: int) -> LabelledDataset:
        inputs = torch.empty(size, *said.shape, dtype=kinds.IMAGES.dtype, device="meta")
        return LabelledDataset(inputs, torch.empty(size, dtype=torch.int64, device="meta"))

    train, validation, test = map(split, said.sizes)
    return Client(said.client, said.architecture, train, validation, test, said.name)


def _begin(asked: FederationFile, setting: Setting) -> Packet:
    """Return what clients are told before the first round."""
    same = {"method", "seed", "rounds", "training", "distillation", "compute"}
    of_all = {"classes": setting.classes, "clients": list(setting.by_id)}
    return Packet({**asked.model_dump(mode="json", include=same), **of_all}, {"public": setting.public})


def written(file: Path, text: str) -> None:
    """Write a text as `replacing` does."""
    with replacing(file, str(file)) as partial:
        partial.write_text(text, encoding="utf-8")
