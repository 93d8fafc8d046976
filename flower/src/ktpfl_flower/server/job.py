"""The runs of a server's file: one job per method, as the main package runs them."""

import hashlib
import logging
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ktpfl_flower.alike import Data, arithmetic, prepared, scale_of, versions
from ktpfl_flower.client.client_file import understood
from ktpfl_flower.server import classes, federation_file
from ktpfl_flower.server.attendance import Attendance
from ktpfl_flower.server.executor import RealExecutor, RealFederation
from ktpfl_flower.server.federation_file import Plan
from ktpfl_flower.server.registration import Link, Registration
from ktpfl_flower.wire import Packet
from ktpfl_pipeline import models
from ktpfl_pipeline.__main__ import CONF
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.studies import COMPARE
from ktpfl_pipeline.core import compatibility, kinds
from ktpfl_pipeline.core.dataset import LabeledDataset, Shape, TokenShape
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.errors import ClientsMissing, InputError, LostError, named
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.core.setting import Client, Setting
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.data.public import check_size
from ktpfl_pipeline.data.sources import Reading, load_with_vocabulary, npz
from ktpfl_pipeline.data.standardization import Standardization
from ktpfl_pipeline.hooks import configure_tracking
from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.datasets import ReportDataset, ResultDataset
from ktpfl_pipeline.runs import progress
from ktpfl_pipeline.runs.assembly import settings_of
from ktpfl_pipeline.runs.comparison import attempt, evaluate, report
from ktpfl_pipeline.runs.identity import Job
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS, CONFIG_LOADER_CLASS

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RealData:
    """The data of a federation of real clients at the server.

    Attributes:
        plan: the plan in the server's file.
        link: the connection to the clients.
        public: public images, (M, C, H, W) uint8, tokens, (M, L) int64, or standardized features, (M, ...) float32.
        kind: their kind, and what the ids of tokens mean.
        scale: the standardization of features; None for other kinds.
    """

    plan: Plan
    link: Link
    public: Tensor
    kind: Data
    scale: Standardization | None = None
    pretrained: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """Shape of one sample; a `TokenShape` for tokens."""
        if (known := self.kind.vocabulary) is None:
            return tuple(self.public.shape[1:])
        return TokenShape(self.public.shape[1:], known.size, known.padding)

    @property
    def named(self) -> dict[str, Any]:
        """Fingerprints of the public samples and of their vocabulary, for the names of runs."""
        words = {} if self.kind.vocabulary is None else {"vocabulary": asdict(self.kind.vocabulary)}
        scale = {} if self.scale is None else {"scale": self.scale.plain()}
        return {"public": hashlib.sha256(self.public.numpy().tobytes()).hexdigest(), **words, **scale}


@dataclass(frozen=True, eq=False)
class RealJob(Job):
    """One method on real clients."""

    data: RealData  # type: ignore[assignment]
    keeps_models: ClassVar[bool] = False
    sources: ClassVar[tuple[Path, ...]] = tuple(sorted(Path(__file__).parents[1].rglob("*.py")))

    def federation(self, seed: int, checkpoints: Path | None) -> tuple[RealFederation, Facts]:
        """Register the clients, and return their federation and the facts about their data: sizes, but not labels.

        Raises:
            InputError: if too few clients register in time, or a client does not fit the server, the other clients or a
                method.
        """
        file, data, experiment = self.data.plan.file, self.data, self.experiment
        attendance = self.met(seed, checkpoints)
        clients = [said for _, said in sorted(attendance.clients.items())]
        names = classes.agreed({said.client: said.classes for said in clients}, file.class_names)
        fed = RealFederation(
            clients=tuple(map(_shell, clients)),
            public=data.public,
            classes=len(names),
            build=partial(models.build, shape=data.shape, classes=len(names)),
            seed=seed,
            executor=RealExecutor(attendance, self.method),
            **settings_of(experiment),
        )
        for method in file.methods:  # before the first one is trained
            if wrong := compatibility.problems(method_of(experiment, method), fed):
                raise InputError(" ".join(wrong))
        fed.executor.enter(fed, self._begin(fed, names))
        sizes = torch.tensor([[sum(said.sizes)] for said in clients])
        profile = {"samples": int(sizes.sum()), "public samples": len(data.public), "clients": len(clients)}
        described = [{name: value for name, value in said.lasting().items() if name != "versions"} for said in clients]
        return fed, Facts(
            label_counts=sizes,
            fingerprint=digest({**data.named, "clients": described}),
            shape=list(data.shape),
            kind=data.kind.kind,
            native=[],
            profile={**profile, "classes": len(names)},
            class_names=None if names == [str(label) for label in range(len(names))] else tuple(names),
        )

    def built(self) -> dict[str, Any]:
        """Return nothing: the clients build the models, from files of their own."""
        return {}

    def met(self, seed: int, folder: Path | None = None) -> Attendance:
        """Return the attendance of a run's clients, which have registered and fit together.

        If all clients register, but some have changed since an earlier start, another run starts. If some do not
        register in time, the run of the earlier start continues.

        Args:
            seed: the seed of the run.
            folder: the folder in which the registrations of a run are stored; None stores nothing.

        Raises:
            InputError: if too few clients register in time, two clients have the same number, or a client does not fit
                the server or the other clients.
        """
        name = self._run_name(seed)
        attendance = Attendance(self.data.link, name, seed, self.data.plan, self.data.kind, self.data.public.shape[1:])
        place = None if folder is None else folder / name / "clients.pt"
        known = None if place is None else checkpoint.load(place, {"run": name}, torch.device("cpu"))
        said_before = {} if known is None else known["clients"]
        attendance.meet({int(n): understood(Registration, said, str(place)) for n, said in said_before.items()})
        if place is not None:
            clients = {n: asdict(said) for n, said in attendance.clients.items()}
            checkpoint.save(place, {"settings": {"run": name}, "clients": clients})
        return attendance

    def _run_name(self, seed: int) -> str:
        """Return the name of a run, in hexadecimal digits; it does not depend on how long the server waits."""
        settings = self.experiment.shared() | {"seeds": seed, "compute": arithmetic(self.experiment.compute)}
        method = [self.method, self.hyperparameters()]
        return digest({**settings, "method": method, **self.data.named, "versions": versions()})

    def _begin(self, setting: Setting, class_names: list[str]) -> Packet:
        """Return the message that starts a run at a client."""
        told = ("rounds", "training", "distillation", "knowledge")
        said = {name: plain(getattr(self.experiment, name)) for name in told}
        said |= {"method": self.method, "seed": setting.seed, "compute": arithmetic(self.experiment.compute)}
        scale = {} if (found := self.data.scale) is None else {"mean": found.mean, "std": found.std}
        tensors = {"public": setting.public, **scale}
        said |= {"classes": setting.classes, "class_names": class_names, "clients": list(setting.by_id)}
        return Packet(said, tensors)

    def newcomers(self, seed: int) -> tuple[()]:
        """Return no client: real clients are never held out as new clients."""
        return ()

    def ended(self, method: Any, result: Run, fed: Any, trained: bool) -> dict[str, Any]:
        """Let each client store its own final model, and return the bytes of its messages.

        After a resume the bytes are left out, because the bytes of earlier rounds are not known.
        """
        if trained or fed.executor.is_newest:
            _conclude(method, result.state, fed)
        if not trained or fed.executor.resumed:
            return {}
        return {"wire": {way: [sizes[n] for n in fed.by_id] for way, sizes in fed.executor.attendance.wire.items()}}


def _shell(said: Registration) -> Client:
    """Return a client without its samples: tensors on the device `meta`, which cannot be read."""

    def split(size: int) -> LabeledDataset:
        inputs = torch.empty(size, *said.shape, dtype=kinds.KINDS[said.data.kind].dtype, device="meta")
        return LabeledDataset(inputs, torch.empty(size, dtype=torch.int64, device="meta"))

    train, validation, test = map(split, said.sizes)
    return Client(said.client, said.architecture, train, validation, test, said.name)


def jobs(plan: Plan, link: Link) -> list[RealJob]:
    """Return one job per method of a server's file; they share the public set and the link.

    Raises:
        InputError: if the public samples cannot be read, are fewer than a batch, or real clients cannot use them.
    """
    image, public = plan.experiment.image, plan.experiment.public
    inputs, known = load_with_vocabulary(public.source, plan.folder, Reading.of(image, plan.experiment.text))
    check_size(len(inputs), public.batch)
    name, _, argument = public.source.partition(":")
    columns = npz.columns(argument, plan.folder) if name == "npz" else None
    inputs, kind = prepared(inputs, known, public.source, image, columns)
    scale = scale_of(inputs)
    data = RealData(plan, link, inputs if scale is None else scale(inputs), kind, scale)
    return [RealJob(plan.file.name, method, plan.experiment, data) for method in plan.file.methods]


def run(path: Path, link: Link) -> Path:
    """Run the methods of a server's file, and return the path of the report.

    Results, report, checkpoints and MLflow runs are in the project's usual folders, and tracking is configured as in
    its ``conf/``, or the package's if the project has none. Finished runs are reused, and an
    interrupted run continues from its checkpoint.

    Raises:
        InputError: if the file, the clients or the public set do not fit together, or too few clients are left.
    """
    plan = federation_file.read(path)
    conf = plan.project / "conf" if (plan.project / "conf").is_dir() else CONF
    configure_tracking(CONFIG_LOADER_CLASS(str(conf), **CONFIG_LOADER_ARGS), plan.project)
    made = jobs(plan, link)
    progress.expect(len(made))
    results, tried = [], [(job, attempt(job)) for job in made]
    for job, runs in tried:
        result = evaluate(job.experiment, runs)
        file = plan.project / "data" / "07_model_output" / job.name / slug(job.method) / "result.json"
        ResultDataset(filepath=str(file)).save(result)
        results.append(result)
    name = f"{COMPARE}{plan.file.name}" if len(results) > 1 else plan.file.name
    place = ReportDataset(filepath=str(plan.project / "data" / "08_reporting" / name))
    place.save(report(plan.experiment, "", *results, section=plan.file.name, name=name))
    logger.info("%s", place.console())
    return place.page


def _conclude(method: Method[Any], state: Any, fed: RealFederation) -> None:
    """Let each client that takes part store its own final model, and name the missing clients."""
    executor, missing = fed.executor, dict[int, str]()
    while True:
        try:
            missing |= executor.missing(fed, list(fed.by_id), fed.rounds + 1, 0)
            if there := [n for n in fed.by_id if n not in missing and n not in executor.bare]:
                missing |= executor.end(method.personal(state, there, fed))
            break
        except LostError as error:  # the client is bare from now on
            logger.warning("%s", error)
        except ClientsMissing as error:
            missing |= error.found
    for n in sorted(executor.bare):
        logger.warning("%s has lost its own model; the model that it kept before stays as it is.", named(n, fed.names))
    if missing:
        logger.warning(
            "%s Start these clients and run the same command again, so that each stores its own model.",
            ClientsMissing(missing, fed.names),
        )
