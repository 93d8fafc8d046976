"""One method on real clients as the main package runs it, and the whole of what a server's file asks for."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from ktpfl_flower.server import federation_file, serve
from ktpfl_flower.server.attendance import Link
from ktpfl_flower.server.ending import conclude
from ktpfl_flower.server.executor import RealFederation
from ktpfl_flower.server.federation_file import Plan
from ktpfl_pipeline.__main__ import CONF
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.hooks import configure_tracking
from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.datasets import ReportDataset, ResultDataset
from ktpfl_pipeline.pipelines.evaluation.nodes import evaluate
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.identity import Job
from ktpfl_pipeline.pipelines.federated_training.runs import run_all
from ktpfl_pipeline.pipelines.reporting.nodes import report

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RealData:
    """What a server has of real clients' data: the public set, and a link to the clients.

    Attributes:
        plan: the server's file.
        public: (M, C, H, W) uint8.
        link: to the clients.
    """

    plan: Plan
    public: Tensor
    link: Link
    pretrained: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RealJob(Job):
    """One method on real clients."""

    data: RealData  # type: ignore[assignment]
    keeps_models: ClassVar[bool] = False
    sources: ClassVar[tuple[Path, ...]] = tuple(sorted(Path(__file__).parents[1].rglob("*.py")))

    def federation(self, seed: int, checkpoints: Path | None) -> tuple[RealFederation, Facts]:
        """Meet the clients, and return the federation with them.

        Raises:
            InputError: if they are not there in time, or do not fit the server, each other, or one of the methods.
        """
        plan, public = self.data.plan, self.data.public
        attendance = serve.met(plan, self.method, seed, public, self.data.link, checkpoints)
        serve.check_architectures(plan.file.methods, attendance.clients)
        fed = serve.federation(plan, self.method, seed, public, attendance)
        return fed, serve.facts(plan, public, attendance)

    def newcomers(self, seed: int) -> tuple[()]:
        """Return none: a real client that joins late is no newcomer to be held out."""
        return ()

    def ended(self, method: Any, result: Run, fed: Any, trained: bool) -> dict[str, Any]:
        """Let each client keep its own model, and return the bytes that its messages took.

        The bytes are left out where the run was resumed: those of the rounds before are not known any more.
        """
        if trained or fed.executor.is_newest:
            conclude(method, result.state, fed)
        if not trained or fed.executor.resumed:
            return {}
        return {"wire": {way: [sizes[n] for n in fed.by_id] for way, sizes in fed.executor.attendance.wire.items()}}


def jobs(plan: Plan, link: Link) -> list[RealJob]:
    """Return one job for each method of a server's file; they share the public set and the link."""
    data = RealData(plan, serve.public_set(plan), link)
    return [RealJob(plan.file.name, method, plan.experiment, data) for method in plan.file.methods]


def run(path: Path, link: Link) -> Path:
    """Run all that a server's file asks for, and return the page of the report.

    Results, report, checkpoints and MLflow's runs are where the pipelines of the project put theirs. Finished runs are
    taken as they are, and an interrupted run goes on from its checkpoint.

    Args:
        path: the server's file.
        link: to the clients.

    Raises:
        InputError: if the file, the clients and the public set do not fit together, or too few clients are left.
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
    """Let runs be tracked as the project's ``conf/`` says; the package's own where the project has none."""
    from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS, CONFIG_LOADER_CLASS

    conf = project / "conf" if (project / "conf").is_dir() else CONF
    configure_tracking(CONFIG_LOADER_CLASS(str(conf), **CONFIG_LOADER_ARGS), project)
