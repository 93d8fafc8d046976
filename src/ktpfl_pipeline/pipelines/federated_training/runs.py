"""One run: from settings and data to a federation, through the engine, into the tracker."""

import hashlib
import json
import logging
import sys
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline import models, tracking
from ktpfl_pipeline.analysis import matrix, theorem
from ktpfl_pipeline.analysis.results import FinishedRun, summarise
from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.config import schema
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import engine, executors
from ktpfl_pipeline.core import federation as core
from ktpfl_pipeline.core.adversaries import Adversaries
from ktpfl_pipeline.core.client.dp_sgd import Privacy
from ktpfl_pipeline.core.coefficients import soft_predictions
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.data.partition import label_counts, label_similarity
from ktpfl_pipeline.pipelines.federated_training.progress import Progress, SeedProgress

logger = logging.getLogger(__name__)
PACKAGE = Path(__file__).parents[2]


def run_seed(
    name: str,
    method: str,
    experiment: Experiment,
    data: FederatedData,
    seed: int,
    progress: Progress,
    parent: str | None = None,
    label: str = "",
) -> FinishedRun:
    """Run `method` with one seed to its end: resumed, or taken as it is where it finished before.

    Args:
        name: the experiment's name.
        method: its name in the registry.
        experiment: the settings.
        data: the federation's data.
        seed: of every random stream.
        progress: who is shown how far it is.
        parent: MLflow's id of the sweep's run that this one is below; None outside sweeps.
        label: the swept setting's value there, where this run depends on it: ``rho=0.3``.
    """
    made = schema.create_method(method, experiment.methods.get(method, {}))
    hyperparameters = asdict(made)
    fed = assemble(experiment, data, seed)
    liars = fed.positions(fed.liars).tolist()
    settings = identity(name, method, made, experiment, fed, data, seed)
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    scheme = experiment.partition.scheme
    tags = {"experiment": name, "method": method, "partition": scheme, "seed": str(seed)}
    title = f"{method} · {scheme} · seed {seed}"
    if parent is not None:
        title = " · ".join(filter(None, (label, method, f"seed {seed}")))
        tags[tracking.PARENT] = parent
    tracker = tracking.current()
    folder = tracker.checkpoints and tracker.checkpoints / name / method / f"seed-{seed}-{key[:8]}"
    if parent is None and folder and not folder.exists() and any(folder.parent.glob(f"seed-{seed}-*")):
        logger.info("%s, seed %d: settings, data or code are not those of the runs before: starting anew", method, seed)
    with (
        closing(fed.executor),
        tracker.run(name, title, key, settings, tags) as tracked,
        progress.run(seed) as shown,
    ):
        result = engine.run(
            made,
            fed,
            engine.Schedule(experiment.rounds, experiment.participation, experiment.evaluate_every),
            settings=settings,
            checkpoint_file=folder and folder / "checkpoint.pt",
            observer=engine.Observer(progress=shown.phase, round=lambda record: _tell(record, shown, tracked, liars)),
        )
        counts = label_counts(data.private.labels, data.partitions[seed], data.classes)
        matrices = result.coefficients  # (rounds, N, N)
        finished = FinishedRun(
            experiment=name,
            method=method,
            seed=seed,
            partition=scheme,
            run_id=tracked.run_id,
            key=key,
            architectures=[client.architecture for client in fed.clients],
            label_counts=counts.tolist(),
            history=result.history,
            coefficients=None if matrices is None else matrices[-1].tolist(),
            data=settings["data"],
            matrices={} if matrices is None else matrix.snapshots(matrices),
            attention={} if matrices is None else matrix.attention(matrices, label_similarity(counts)),
            theorem=check_theorem(made, result, fed, experiment.theorem_samples),
            adversaries=liars,
            trust=None if matrices is None or not liars else matrix.trust(matrices[-1], liars),
        )
        log_end(tracked, finished, hyperparameters)
    return finished


def check_theorem(
    method: Method[Any], result: engine.Run, fed: core.Federation, samples: int
) -> theorem.TheoremCheck | None:
    """Check Theorem 1 on the final models of a method with a coefficient matrix, on `samples` test images a client."""
    if result.coefficients is None or samples == 0:
        return None
    models = method.personal(result.state, fed.by_id, fed)
    soft = [soft_predictions(logits).cpu() for logits in fed.cross_logits(models, "test", samples).values()]
    labels = [fed.held_out(n, "test", samples).labels for n in models]
    return theorem.check(soft, labels, result.coefficients[-1].double(), fed.seed)


def assemble(experiment: Experiment, data: FederatedData, seed: int) -> core.Federation:
    """Return the federation of one seed: architectures are dealt out to the clients in turn."""
    names = experiment.architectures
    clients = tuple(
        core.Client(
            id=n,
            architecture=names[n % len(names)],
            train=data.private.take(own.train),
            validation=data.private.take(own.validation),
            test=data.private.take(own.test),
        )
        for n, own in sorted(data.partitions[seed].items())
    )
    image, asked = experiment.image, experiment.compute
    compute = core.Compute(**asked.model_dump(exclude=schema.PLACES | {"stacked"}))
    return core.Federation(
        clients=clients,
        public=data.public_images(seed),
        public_batch_size=experiment.public.batch,
        classes=data.classes,
        build=partial(models.build, channels=image.channels, size=image.size, classes=data.classes),
        seed=seed,
        training=local_training(experiment.training),
        distillation=core.Distillation(**experiment.distillation.model_dump()),
        compute=compute,
        public_transport=experiment.public.transport,
        on_divergence=experiment.on_divergence,
        adversaries=Adversaries(**experiment.adversaries.model_dump()),
        executor=executors.create(asked.workers, asked.threads, compute.place().type, asked.stacked, asked.cluster),
    )


def local_training(given: schema.Training) -> core.LocalTraining:
    """Return what the engine is told of local training."""
    privacy = None if given.privacy is None else Privacy(**given.privacy.model_dump())
    return core.LocalTraining(given.epochs, given.batch_size, given.learning_rate, privacy)


def identity(
    name: str,
    method: str,
    made: Any,
    experiment: Experiment,
    fed: core.Federation,
    data: FederatedData,
    seed: int,
) -> dict[str, Any]:
    """Return everything that a run's result depends on, flat: two runs with equal values are the same run."""
    shared = flat(experiment.shared())
    del shared["seeds"]
    return {
        **shared,
        **flat({"method": asdict(made)}),
        "experiment": name,
        "method": method,
        "seed": seed,
        "compute.device": torch.cuda.get_device_name(fed.device) if fed.device.type == "cuda" else fed.device.type,
        "data": data.fingerprint(seed),
        "code": code_version(type(made), experiment.architectures),
        **({} if fed.training.privacy is None else {"opacus": version("opacus")}),
        "torch": f"{torch.__version__}, torchvision {version('torchvision')}",
    }


def code_version(method: type, architectures: list[str]) -> str:
    """Return a hash of the source that decides a run's result: the engine, the method, and the models in use."""
    modules: set[str] = set()
    for name in (method.__module__, *(models.MODELS[architecture].__module__ for architecture in architectures)):
        _add_with_imports(name, modules)
    files = {Path(sys.modules[name].__file__ or "") for name in modules} | set((PACKAGE / "core").rglob("*.py"))
    files |= {Path(__file__), PACKAGE / "models" / "__init__.py"}  # how federation and models are put together
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _add_with_imports(name: str, modules: set[str]) -> None:
    """Add the module `name`, and those of this package that it takes something from, to `modules`."""
    if name.startswith(f"{PACKAGE.name}.") and name not in modules:
        modules.add(name)
        for value in list(vars(sys.modules[name]).values()):
            _add_with_imports(getattr(value, "__module__", None) or "", modules)


def log_end(tracked: tracking.TrackedRun, run: FinishedRun, hyperparameters: dict[str, Any]) -> None:
    """Log the final numbers, the figures, the matrix and the history of a finished run."""
    from ktpfl_pipeline.reports import figures  # matplotlib is not waited for before the training

    result = summarise([run], hyperparameters)
    drawn = {
        "accuracy": figures.accuracy_curves([result]),
        "labels_per_client": figures.labels_per_client(run.label_counts, "Labels per client"),
    }
    if run.coefficients is not None:
        drawn["coefficients"] = figures.coefficient_heatmaps(result)
    final = {f"final/{point}": values.mean for point, values in result.final.items()}
    best = {f"final/best_round_{point}": values.best for point, values in result.final.items()}
    if spent := run.history[-1].epsilon:
        final["final/epsilon"] = max(spent)
    tables = (
        {"run": run.to_dict()} if run.coefficients is None else {"run": run.to_dict(), "coefficients": run.coefficients}
    )
    tracked.finish({**final, **best}, drawn, tables)


def _tell(record: RoundRecord, shown: SeedProgress, tracked: tracking.TrackedRun, liars: list[int]) -> None:
    """Tell of a round; accuracies are those of the clients that do not lie."""
    record = replace(record, accuracy={point: benign(values, liars) for point, values in record.accuracy.items()})
    shown.round(record)
    tracked.round(record)
