"""A job, which is one method of an experiment, and the identity of its runs: settings, data and source code."""

import ast
import hashlib
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.analysis.classes import by_class
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import extensions
from ktpfl_pipeline.core.engine import Run
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.identity import digest, flat
from ktpfl_pipeline.core.machine.files import PACKAGE
from ktpfl_pipeline.core.model_facts import facts_of
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.data import registry
from ktpfl_pipeline.data.federated import Facts, FederatedData
from ktpfl_pipeline.models import pretrained
from ktpfl_pipeline.runs import assembly

CHECKPOINT, MODELS = "checkpoint.pt", "models.pt"
"""The files of a run's checkpoint and of its clients' final models, in its folder."""


@dataclass(frozen=True, eq=False)
class Job:
    """One method of an experiment, to be run once per seed.

    Attributes:
        name: the name of the experiment, or of the sweep or tuning to which this job belongs.
        method: the method's name in the registry, or its dotted path.
        experiment: the settings.
        data: the data of the federation, for every seed.
        parent: the MLflow id of the run of the sweep or tuning, whose child runs are the runs of this job. None outside
            of sweeps and tunings.
        label: the setting that the sweep or tuning changes, such as ``rho=0.3``, if the method depends on it.
        chooses: whether the runs serve to choose between candidates. Test results are then neither kept nor shown.
    """

    name: str
    method: str
    experiment: Experiment
    data: FederatedData
    parent: str | None = None
    label: str = ""
    chooses: bool = False
    keeps_models: ClassVar[bool] = True
    """Whether the clients' final models may be kept on this machine; false if they belong to real clients."""
    sources: ClassVar[tuple[Path, ...]] = ()
    """Further source files that decide a result; their content is part of a run's identity."""

    def federation(self, seed: int, checkpoints: Path | None) -> tuple[Federation, Facts]:
        """Return the federation of one seed, and the facts about its data that reports use.

        `checkpoints` is the folder of the method's checkpoints, or None if no checkpoints are kept.
        """
        fed = assembly.assemble(self.experiment, self.data, seed)
        return fed, self.data.seeds[seed].facts(list(fed.by_id))

    def newcomers(self, seed: int) -> tuple[Client, ...]:
        return assembly.clients(self.experiment, self.data, seed, held=True)

    def ended(self, method: Any, result: Run, fed: Federation, trained: bool) -> dict[str, Any]:
        """Finish a run after its last round, and return further fields of its `FinishedRun`.

        `trained` is true if this process trained at least one round.
        """
        return by_class(method, result, fed)

    @property
    def pretrained(self) -> Mapping[str, Any]:
        return self.data.pretrained

    def built(self) -> dict[str, Any]:
        """Return hashes of what the users' own builders make and read, by architecture; see `model_facts`."""
        if not (own := [*filter(models.is_own, self.experiment.models())]):
            return {}
        data = self.data.private
        build = partial(models.build, shape=data.shape, classes=data.classes)
        built = {name: facts_of(build, name, data.shape, data.kind, data.classes).built for name in own}
        return {name: {"built": built[name], **extensions.read_by(name)} for name in own}

    def create(self) -> Any:
        with extensions.watched(self.method) if extensions.is_path(self.method) else nullcontext():
            return method_of(self.experiment, self.method)

    def hyperparameters(self) -> dict[str, Any]:
        return asdict(self.create())


def run_folder(seed: int, key: str) -> str:
    return f"seed-{seed}-{key[:8]}"


def device_name(compute: Compute) -> str:
    """Return the name of the GPU on which runs are computed, or ``cpu``."""
    device = compute.place()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def identity(job: Job, seed: int, fingerprint: str = "") -> dict[str, Any]:
    """Return everything on which the run of a job with one seed depends, as a flat dictionary.

    Two runs with equal values are the same run. `fingerprint` identifies the data of the seed; empty computes it.
    """
    made, experiment = job.create(), job.experiment
    shared = flat(experiment.shared())
    del shared["seeds"]
    return {
        **{path: value for path, value in shared.items() if made.depends_on(path)},
        **flat({"method": asdict(made)}),
        "experiment": job.name,
        "method": job.method,
        "seed": seed,
        "compute.device": device_name(experiment.compute),
        "data": fingerprint or job.data.seeds[seed].fingerprint,
        "code": code_version(type(made), experiment, job.sources),
        **({} if experiment.training.privacy is None else {"opacus": version("opacus")}),
        **({"pretrained": pretrained.fingerprint(weights)} if (weights := job.pretrained) else {}),
        **models.libraries(experiment.models()),
        **({"models": digest(own)} if (own := job.built()) else {}),
        **({"reads": digest(read)} if (read := extensions.read_by(job.method)) else {}),
        "torch": f"{torch.__version__}, torchvision {version('torchvision')}",
    }


def code_version(method: type, experiment: Experiment, others: Iterable[Path] = ()) -> str:
    """Return a hash of the source code on which the result of a run depends: the engine, the method, and the models.

    For a method, model or data source outside this package, the hash covers its module, the other modules of its
    package, and all modules that are not installed, as far as import statements name them. The hash does not cover the
    data sources of this package, because the data fingerprint identifies their samples. `others` are further source
    files on which the result depends.
    """
    names = (experiment.private.source, experiment.public.source)
    makers = [models.module_of(name) for name in experiment.models()]
    readers = [name.partition(":")[0] for name in names if registry.PATH.fullmatch(name)]
    put_together = {
        Path(assembly.__file__),
        *(PACKAGE / "models" / file for file in ("__init__.py", "pretrained.py")),
        *(PACKAGE / "data" / file for file in ("feature_skew.py", "federated.py", "standardization.py")),
    }
    files = {str(file): file for file in (*put_together, *(PACKAGE / "core").rglob("*.py"), *others)}
    for module in (method.__module__, *makers, *readers):
        extensions.add_imports(files, module, module.partition(".")[0])
    digest = hashlib.sha256()
    for file in sorted({*files.values()}):
        digest.update(_meaning(file, file.stat().st_mtime_ns).encode())
    return digest.hexdigest()[:16]


@cache
def _meaning(file: Path, changed: int) -> str:
    """Return the syntax tree of a source file without docstrings; it does not depend on comments and layout.

    `changed` is the time of the file's last change in nanoseconds. It is part of the key of the cache.
    """
    tree = ast.parse(file.read_bytes())
    for part in ast.walk(tree):
        if isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            part.body = [each for each in part.body if not _is_string(each)]
    return ast.dump(tree)


def _is_string(statement: Any) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant and isinstance(statement.value.value, str)
