"""The runs of a server's file: one job per method, as the main package runs them."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ktpfl_flower.server import federation_file, serve
from ktpfl_flower.server.attendance import Link
from ktpfl_flower.server.executor import RealFederation
from ktpfl_flower.server.federation_file import Plan
from ktpfl_pipeline.__main__ import CONF
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.errors import ClientsMissing, LostError
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.hooks import configure_tracking
from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.datasets import ReportDataset, ResultDataset
from ktpfl_pipeline.pipelines.experiment import evaluate, report
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.identity import Job
from ktpfl_pipeline.pipelines.federated_training.runs import run_all

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RealData:
    """The data of a federation of real clients at the server: the public set, and a link to the clients.

    Attributes:
        plan: the plan in the server's file.
        public: the public set.
        link: the connection to the clients.
    """

    plan: Plan
    public: serve.PublicSet
    link: Link
    pretrained: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RealJob(Job):
    """One method on real clients."""

    data: RealData  # type: ignore[assignment]
    keeps_models: ClassVar[bool] = False
    sources: ClassVar[tuple[Path, ...]] = tuple(sorted(Path(__file__).parents[1].rglob("*.py")))

    def federation(self, seed: int, checkpoints: Path | None) -> tuple[RealFederation, Facts]:
        """Register the clients, and return their federation and the facts about their data.

        Raises:
            InputError: if too few register in time, or one does not fit the server, the others, or one of the methods.
        """
        plan, public = self.data.plan, self.data.public
        attendance = serve.met(plan, self.method, seed, public, self.data.link, checkpoints)
        serve.check_architectures(plan.file.methods, attendance.clients)
        fed = serve.federation(plan, self.method, seed, public, attendance)
        return fed, serve.facts(plan, public, attendance)

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


def jobs(plan: Plan, link: Link) -> list[RealJob]:
    """Return one job per method of a server's file; they share the public set and the link."""
    data = RealData(plan, serve.public_set(plan), link)
    return [RealJob(plan.file.name, method, plan.experiment, data) for method in plan.file.methods]


def run(path: Path, link: Link) -> Path:
    """Run the methods of a server's file, and return the path of the report.

    Results, report, checkpoints and MLflow runs are in the project's usual folders. Finished runs are reused, and an
    interrupted run continues from its checkpoint.

    Args:
        path: the server's file.
        link: the connection to the clients.

    Raises:
        InputError: if the file, the clients or the public set do not fit together, or too few clients are left.
    """
    plan = federation_file.read(path)
    track(plan.project)
    made = jobs(plan, link)
    progress.expect(len(made))
    results = []
    for job in made:
        result = evaluate(job.experiment, run_all(job))
        file = plan.project / "data" / "07_model_output" / job.name / slug(job.method) / "result.json"
        ResultDataset(filepath=str(file)).save(result)
        results.append(result)
    name = f"compare_{plan.file.name}" if len(results) > 1 else plan.file.name
    place = ReportDataset(filepath=str(plan.project / "data" / "08_reporting" / name))
    place.save(report(plan.experiment, "", *results, section=plan.file.name, name=name))
    logger.info("%s\nReport: %s", place.console(), place.page)
    return place.page


def track(project: Path) -> None:
    """Configure tracking as in the project's ``conf/``, or the package's if the project has none."""
    from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS, CONFIG_LOADER_CLASS

    conf = project / "conf" if (project / "conf").is_dir() else CONF
    configure_tracking(CONFIG_LOADER_CLASS(str(conf), **CONFIG_LOADER_ARGS), project)


def _conclude(method: Method[Any], state: Any, fed: RealFederation) -> None:
    """Let each client that takes part store its own final model, and name the missing clients."""
    missing = _missing(fed)
    for n in sorted(fed.executor.bare):
        logger.warning("Client %d has lost its own model; its model.pt stays as it is.", n)
    there = [n for n in fed.by_id if n not in missing and n not in fed.executor.bare]
    while there:
        try:
            fed.executor.end(method.personal(state, there, fed))
            break
        except ClientsMissing as error:
            missing |= error.found
            there = [n for n in there if n not in missing]
    if missing:
        logger.warning(
            "%s Start these clients and run the same command again, so that each stores its own model.",
            ClientsMissing(missing),
        )


def _missing(fed: RealFederation) -> dict[int, str]:
    """Return which clients are missing; the executor notes clients that came back without their models."""
    while True:
        try:
            return fed.executor.missing(fed, list(fed.by_id), fed.rounds + 1, 0)
        except LostError as error:
            logger.warning("%s", str(error).partition(":")[0])
