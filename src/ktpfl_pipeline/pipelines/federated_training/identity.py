"""What is run, and what tells its runs from others: settings, data and the source that decides a result."""

import hashlib
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline import models
from ktpfl_pipeline.config.parsing import create_method
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.pipelines.federated_training import assembly

PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, eq=False)
class Job:
    """One method of an experiment, to be run once a seed.

    Attributes:
        name: the experiment's, or the sweep's or tuning's that this is a part of.
        method: its name in the registry, or its dotted path.
        experiment: the settings.
        data: of the federation, for every seed.
        parent: MLflow's id of the sweep's or tuning's run that its runs are below; None outside of these.
        label: what the sweep or tuning sets there, where the method depends on it: ``rho=0.3``.
    """

    name: str
    method: str
    experiment: Experiment
    data: FederatedData
    parent: str | None = None
    label: str = ""

    def create(self) -> Any:
        """Return the method with its hyperparameters."""
        return create_method(self.method, self.experiment.methods.get(self.method, {}))

    def hyperparameters(self) -> dict[str, Any]:
        """Return the method's hyperparameters."""
        return asdict(self.create())


def identity(job: Job, fed: Federation) -> dict[str, Any]:
    """Return everything that a run's result depends on, flat: two runs with equal values are the same run.

    Args:
        job: what is run.
        fed: its federation of one seed.
    """
    made, shared = job.create(), flat(job.experiment.shared())
    del shared["seeds"]
    return {
        **shared,
        **flat({"method": asdict(made)}),
        "experiment": job.name,
        "method": job.method,
        "seed": fed.seed,
        "compute.device": torch.cuda.get_device_name(fed.device) if fed.device.type == "cuda" else fed.device.type,
        "data": job.data.seeds[fed.seed].fingerprint,
        "code": code_version(type(made), job.experiment.architectures),
        **({} if fed.training.privacy is None else {"opacus": version("opacus")}),
        "torch": f"{torch.__version__}, torchvision {version('torchvision')}",
    }


def identity_of_method(method: str, experiment: Experiment) -> list[Any]:
    """Return a method's name, its hyperparameters in an experiment, and a hash of the source that it runs."""
    made = create_method(method, experiment.methods.get(method, {}))
    return [method, asdict(made), code_version(type(made), experiment.architectures)]


def code_version(method: type, architectures: list[str]) -> str:
    """Return a hash of the source that decides a run's result: the engine, the method, and the models in use.

    Of a method or model outside this package, what it takes from its own package counts too.
    """
    used = {method.__module__, *(models.MODELS[architecture].__module__ for architecture in architectures)}
    packages = {name.partition(".")[0] for name in used} | {PACKAGE.name}
    modules: set[str] = set()
    for name in used:
        _add_with_imports(name, packages, modules)
    files = {Path(sys.modules[name].__file__ or "") for name in modules} | set((PACKAGE / "core").rglob("*.py"))
    files |= {Path(assembly.__file__), PACKAGE / "models" / "__init__.py"}  # how federation and models are put together
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _add_with_imports(name: str, packages: set[str], modules: set[str]) -> None:
    """Add the module `name`, and those of the packages that it takes something from, to `modules`."""
    if name in modules or name == PACKAGE.name or name.partition(".")[0] not in packages or name not in sys.modules:
        return
    modules.add(name)
    for value in list(vars(sys.modules[name]).values()):
        _add_with_imports(getattr(value, "__module__", None) or "", packages, modules)
