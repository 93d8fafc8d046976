"""Running one method with every seed: federation, engine, checkpoint and tracker.

Arguments that functions share: `job`, the method and its experiment; `method` or `made`, the method with its
hyperparameters; `result`, the state and records after the last round; `fed`, the federation.
"""

import logging
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import torch
from torch import Tensor

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis import inputs, matrix, theorem
from ktpfl_pipeline.analysis.results import FinishedRun, TheoremCheck, recalls, summarize
from ktpfl_pipeline.analysis.statistics import benign, mean_over_clients
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.extensions import own_errors
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.machine.files import alone, replacing
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, VALIDATION, Newcomers, RoundRecord
from ktpfl_pipeline.core.rounds import newcomers
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.core.weights import Models, opened
from ktpfl_pipeline.data.federated import Facts
from ktpfl_pipeline.data.partition import label_similarity
from ktpfl_pipeline.data.sources import Reading
from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.runs.identity import CHECKPOINT, MODELS, Job, identity, run_folder
from ktpfl_pipeline.runs.more_rounds import take_over
from ktpfl_pipeline.runs.progress import Progress, SeedProgress

logger = logging.getLogger(__name__)
WAITING = "Another process runs %s, seed %d, of %s: this one waits for it."


def run_all(job: Job, title: str = "") -> list[FinishedRun]:
    """Run a method once for each seed of its experiment. `title` replaces the method's name in the progress display."""
    with Progress(title or job.method, job.experiment, VALIDATION if job.chooses else AFTER_TRANSFER) as progress:
        return [run_seed(job, seed, progress) for seed in job.experiment.seeds]


def run_seed(job: Job, seed: int, progress: Progress) -> FinishedRun:
    """Run a method with one seed to its end. An unfinished run is resumed, and a finished run is not trained again."""
    made = job.create()
    fed, facts = job.federation(seed, _checkpoints(job))
    settings = identity(job, seed, facts.fingerprint)
    key = digest(settings)
    tracker, folder, rounds = tracking.current(), checkpoints_of(job, seed, key), schedule(job.experiment)
    if job.parent is None and folder and not folder.exists() and any(folder.parent.glob(run_folder(seed, "*"))):
        progress.plan.say_anew()
    with (
        alone(folder, partial(logger.warning, WAITING, job.method, seed, job.name)) if folder else nullcontext(),
        closing(fed.executor),
        tracker.run(_entry(job, seed, key, settings), _dataset(job.experiment, facts)) as tracked,
        progress.run(seed) as shown,
    ):
        if folder and job.parent is None:
            take_over(job, seed, settings, folder, rounds)
        adversaries = fed.places(fed.adversary_ids)
        observer = engine.Observer(shown.phase, lambda record: _tell(record, shown, tracked, adversaries, job.chooses))
        file = folder and folder / CHECKPOINT
        with own_errors(job.method, "method"):
            result = engine.run(made, fed, rounds, settings=settings, checkpoint_file=file, observer=observer)
        known = {"run_id": tracked.run_id, "key": key, "data": settings["data"]}
        finished = _conclude(job, made, fed, facts, result, shown.trained, known)
        from ktpfl_pipeline.reports import notes

        if few := notes.participation(finished):
            warn("Participation", f"{job.name}: {few}")
        shown.tell(mean_over_clients(finished.final(progress.point), finished.adversaries))
        kept = {"first": {min(job.experiment.seeds)}, "all": {seed}, "none": set()}[tracking.current().models]
        ours = job.keeps_models and job.parent is None and seed in kept
        if folder and ours and not (folder / MODELS).exists():
            keep_models(folder / MODELS, job, made, result, fed, key)
        if not tracked.complete:
            log_end(tracked, finished, asdict(made), drawn=job.parent is None)
    return finished


def _conclude(
    job: Job, made: Method[Any], fed: Federation, facts: Facts, result: engine.Run, trained: bool, known: dict[str, str]
) -> FinishedRun:
    """Take the measurements after the last round, and return the finished run with the fields in `known`."""
    experiment, beside, held = job.experiment, job.ended(made, result, fed, trained), job.newcomers(fed.seed)
    epochs = experiment.evaluation.epochs(experiment.training.epochs)
    behind = replace(fed, rounds=result.rounds)  # the state may have fewer rounds
    finished = finished_run(
        job.method,
        fed,
        result,
        facts.label_counts,
        experiment=job.name,
        partition=experiment.partition.scheme,
        memory=fed.training_memory(),
        theorem=check_theorem(made, result, fed, experiment.theorem_samples),
        shape=facts.shape,
        native=facts.native,
        kind=facts.kind,
        class_names=list(facts.class_names or ()),
        tested=list(facts.tested),
        newcomers=newcomers.judge(made, result.state, behind, held, epochs) if held else None,
        patience=experiment.evaluation.patience,
        **known,
        **beside,
    )
    return _untested(finished) if job.chooses else finished


def schedule(experiment: Experiment) -> engine.Schedule:
    """Return the number of rounds of an experiment, and the rounds in which clients are evaluated."""
    return engine.Schedule(
        experiment.rounds,
        experiment.participation,
        experiment.evaluate_every,
        experiment.evaluation.epochs(experiment.training.epochs),
        experiment.evaluation.global_samples,
        experiment.evaluation.closing_round,
        experiment.evaluation.patience,
        experiment.evaluate_last,
    )


def checkpoints_of(job: Job, seed: int, key: str) -> Path | None:
    """Return the folder of a run's checkpoint, or None if no checkpoints are kept."""
    folder = _checkpoints(job)
    return folder and folder / run_folder(seed, key)


def _checkpoints(job: Job) -> Path | None:
    place = tracking.current().checkpoints
    return place and place / job.name / slug(job.method)


def finished_run(method: str, fed: Federation, result: engine.Run, counts: Tensor, **beside: Any) -> FinishedRun:
    """Return the finished run with all fields that follow from the federation and its rounds.

    `counts` are the numbers of private samples of each client by class, (N, K), or (N, 1) if only the clients know
    their labels. `beside` are the other fields of the run.
    """
    matrices, adversaries = result.coefficients, fed.places(fed.adversary_ids)  # (rounds, N, N)
    attention: dict[str, list[float]] = {}
    if matrices is not None and counts.shape[1] > 1 and matrix.mixes(matrices):
        attention = matrix.attention(matrices, label_similarity(counts), adversaries)
    return FinishedRun(
        method=method,
        seed=fed.seed,
        architectures=[client.architecture for client in fed.clients],
        label_counts=counts.tolist(),
        names=[client.name for client in fed.clients if client.name],
        samples={split: [len(getattr(client, split)) for client in fed.clients] for split in get_args(Split)},
        ids=list(fed.by_id),
        history=result.history,
        coefficients=None if matrices is None else matrices[-1].tolist(),
        matrices={} if matrices is None else matrix.snapshots(matrices),
        attention=attention,
        adversaries=adversaries,
        warnings=list(result.warnings),
        trust=None if matrices is None or not adversaries else matrix.trust(matrices[-1], adversaries),
        **beside,
    )


def check_theorem(method: Method[Any], result: engine.Run, fed: Federation, samples: int) -> TheoremCheck | None:
    """Check Theorem 1 on the final models with `samples` test samples per client.

    Return None if `samples` is 0 or the method has no coefficient matrix.
    """
    if result.coefficients is None or samples == 0:
        return None
    models = method.personal(result.state, fed.by_id, fed)
    soft = [soft_predictions(logits).cpu() for logits in fed.cross_logits(models, "test", samples).values()]
    labels = [fed.held_out(n, "test", samples).labels for n in models]
    learned = result.coefficients[-1].double()
    return theorem.check(soft, labels, learned if matrix.mixes(learned) else None, fed.seed)


def keep_models(file: Path, job: Job, method: Method[Any], result: engine.Run, fed: Federation, key: str) -> None:
    """Write the clients' final models and the facts about their inputs to a file, which `ktpfl export` reads."""
    experiment, data, space = job.experiment, job.data.seeds[fed.seed], Workspace(fed)
    personal: Models = opened(method.personal(result.state, fed.by_id, fed))
    about = {
        **{"experiment": job.name, "method": job.method, "seed": fed.seed, "rounds": result.rounds, "key": key},
        **inputs.facts(data.private, fed.classes, data.scale, Reading.of(experiment.image, experiment.text)),
    }
    fill = {n: inputs.fill_of(data.private.take(own.train[:1])) for n, own in data.partition.items()}
    clients = {
        n: {"name": client.name, "architecture": client.architecture, "fill": fill[n]}
        for n, client in fed.by_id.items()
    }
    weights = {n: {name: each.cpu() for name, each in space.whole(n, own).items()} for n, own in personal.items()}
    with replacing(file, f"The clients' models, {file},") as partial, partial.open("wb") as opened_file:
        torch.save({"about": about, "clients": clients, "models": weights}, opened_file)


def log_end(
    tracked: tracking.TrackedRun, run: FinishedRun, hyperparameters: dict[str, Any], *, drawn: bool = True
) -> None:
    """Log the final numbers, the matrix and the history of a finished run, and with `drawn` also the figures.

    The runs of a study have no figures: there are many of them, and drawing takes as long as training small models.
    """
    result = summarize([run], hyperparameters)
    figures: dict[str, Any] = {}
    tables: dict[str, Any] = {"run": run.to_dict()}
    if run.coefficients is not None:
        tables["coefficients"] = run.coefficients
    final = {f"final/{point}": values.mean for point, values in result.final.items()}
    best = {f"final/best_round_{point}": result.final[point].best for point in result.curve}
    if run.majority:
        final["final/majority_class"] = mean_over_clients(run.majority, run.adversaries)
    if run.confusion:
        tables["confusion"] = {"classes": run.classes, "test samples, row = true class": run.confusion}
        final |= {f"class_accuracy/{label}": share for label, share in enumerate(recalls([run])) if share is not None}
    if spent := run.history[-1].epsilon:
        final["final/epsilon"] = max(spent)
    cost = {"final/megabytes": sum(run.traffic.values()) / 1e6}
    marks = [int(place in run.adversaries) for place in range(len(run.architectures))]
    clients: dict[str, list[Any]] = {
        "client": list(run.client_names),
        **({"malicious": marks} if any(marks) else {}),
        "architecture": run.architectures,
        "samples": [sum(counts) for counts in run.label_counts],
        **{f"final/{point}": run.final(point) for point in result.curve},
        **{f"final/{name}": values for name, values in run.measures.items()},
    }
    if drawn:
        from ktpfl_pipeline.reports.figures import coefficient_heatmaps, confusion_matrices

        figures |= {"coefficients": coefficient_heatmaps(result)} if run.coefficients is not None else {}
        figures |= {"confusion": confusion_matrices([result])} if run.confusion else {}
    tracked.finish(tracking.Ending({**final, **best, **cost, **_joined(run.newcomers)}, figures, tables, clients))


def _untested(run: FinishedRun) -> FinishedRun:
    """Return a run without results on test samples: only validation accuracies and training losses remain."""
    history = list(map(_untested_round, run.history))
    untested: dict[str, Any] = {name: [] for name in ("confusion", "predicted", "correct", "majority")}
    return replace(run, history=history, theorem=None, newcomers=None, jackknife={}, **untested)


def _untested_round(record: RoundRecord) -> RoundRecord:
    accuracy = {point: values for point, values in record.accuracy.items() if point == VALIDATION}
    loss = {phase: values for phase, values in record.loss.items() if phase != "test"}
    return replace(record, accuracy=accuracy, loss=loss, measures={})


def _joined(found: Newcomers | None) -> dict[str, float]:
    """Return metrics of the newcomers: mean accuracies, and the megabytes that joining took."""
    if found is None:
        return {}
    means = {f"newcomers/after_{e}_epochs": fmean(values) for e, values in found.accuracy.items()}
    beside = {f"newcomers/there_after_{e}_epochs": fmean(values) for e, values in found.there.items()}
    return {**means, **beside, "newcomers/megabytes": sum(found.traffic.values()) / 1e6}


def _entry(job: Job, seed: int, key: str, settings: dict[str, Any]) -> tracking.Entry:
    scheme, seeded = job.experiment.partition.scheme, f"seed {seed}"
    tags = {"experiment": job.name, "method": job.method, "partition": scheme, "seed": str(seed)}
    if job.parent is None:
        return tracking.Entry(job.name, f"{job.method} · {scheme} · {seeded}", key, settings, tags)
    tags |= {"setting": job.label or "as configured", tracking.PARENT: job.parent}
    title = " · ".join(filter(None, (job.label, job.method, seeded)))
    return tracking.Entry(job.name, title, key, settings, tags)


def _dataset(experiment: Experiment, facts: Facts) -> tracking.Dataset:
    name = f"{experiment.private.source} · {experiment.partition.scheme} · public {experiment.public.source}"
    return tracking.Dataset(name, facts.fingerprint, facts.profile)


def _tell(
    record: RoundRecord, shown: SeedProgress, tracked: tracking.TrackedRun, adversaries: list[int], chooses: bool
) -> None:
    """Log a round with values of benign clients only, and without test results for a run that `chooses`."""
    record = _untested_round(record) if chooses else record
    accuracy = {point: benign(values, adversaries) for point, values in record.accuracy.items()}
    measures = {name: benign(values, adversaries) for name, values in record.measures.items()}
    loss = {phase: benign(found, adversaries) if phase == "test" else found for phase, found in record.loss.items()}
    record = replace(record, accuracy=accuracy, measures=measures, loss=loss)
    shown.round(record)
    tracked.round(record)
