"""All trials of a tuning, below one run of its own in the tracker.

Arguments that the functions share: `tune`, the tuning's settings, and `job`, one method, as configured.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktpfl_pipeline.analysis.agreement import check_settings
from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.analysis.trials import Trial, Tuning, highest
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import TUNE, Tune
from ktpfl_pipeline.config.tuned import Tuned, TunedMethod
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.core.metrics import VALIDATION
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.arithmetic import settled
from ktpfl_pipeline.pipelines.federated_training.identity import Job
from ktpfl_pipeline.pipelines.federated_training.runs import run_all as run_seeds
from ktpfl_pipeline.pipelines.parent import parent_run
from ktpfl_pipeline.pipelines.prepare import prepare
from ktpfl_pipeline.pipelines.tune.search import search, stream
from ktpfl_pipeline.tracking import Ending

logger = logging.getLogger(__name__)


def run_all(name: str, tune: Tune, experiment: Experiment, methods: Sequence[str], raw_folder: Path) -> dict[str, Any]:
    """Run all candidates of all methods with every seed of the tuning, and return the `Tuning` as plain values.

    A trial is made of ordinary runs, one a seed. Finished ones are found by their keys and not trained again. Of the
    experiment's `methods`, those without a space run once, as configured.
    """
    at = tune.applied(experiment)
    data = federation(name, at, raw_folder)
    at = settled(at, data, name)
    with parent_run(name, tune, [at], methods, {"kind": "tuning", "tune": name}) as (key, tracked):
        found = {method: tune_method(tune, Job(name, method, at, data, tracked.run_id)) for method in methods}
        best = {f"validation/{method}": highest(trials).validation or 0.0 for method, trials in found.items()}
        tracked.finish(Ending(best))
    return Tuning(plain(tune), at.shared(), key, tracked.run_id, found).to_dict()


def tune_method(tune: Tune, job: Job) -> list[Trial]:
    """Run the candidates of one method.

    Raises:
        InputError: if the training of all of them diverges.
    """
    space, found = tune.space(job.method), list[Trial]()
    configured = job.hyperparameters()

    def evaluate(changes: dict[str, Any]) -> float | None:
        found.append(run_trial(job, changes, len(found) + 1))
        return found[-1].validation

    start = {entry: configured[entry] for entry in space}
    search(space, start, tune.trials, stream(tune.seeds[0], job.method), evaluate)
    progress.fewer(tune.most(job.method) - len(found))
    if all(trial.validation is None for trial in found):
        raise InputError(
            f"{job.name}: all {len(found)} candidates of {job.method} diverged; lower training.learning_rate of "
            f"{job.name.removeprefix(TUNE)}, or change what {job.name}.spaces has for the method."
        )
    return found


def run_trial(job: Job, changes: dict[str, Any], number: int) -> Trial:
    """Run one candidate with every seed: the configured hyperparameters with `changes`; `number` counts from 1."""
    label = ", ".join(f"{entry}={value}" for entry, value in changes.items())
    methods = {job.method: {**job.hyperparameters(), **changes}}
    job = replace(job, experiment=replace(job.experiment, methods=methods), label=label, chooses=True)
    title = ", ".join(filter(None, (f"{title_of(job.method)}, trial {number}", label)))
    values = job.hyperparameters()
    try:
        runs = run_seeds(job, title)
    except DivergedError as error:
        logger.warning("%s: %s", title, error)
        return Trial(changes, values, [], [])
    per_seed = summarise(runs, values).final[VALIDATION].per_seed
    return Trial(changes, values, per_seed, [run.run_id for run in runs])


def parse(name: str, content: Mapping[str, Any], tune: Tune, experiment: Experiment) -> Tuning:
    """Return the tuning that `run_all` left.

    Args:
        name: the tuning's.
        content: what the trials left.
        tune: its settings now.
        experiment: what is tuned, now.

    Raises:
        InputError: if it does not read as a tuning, or was made with other settings, naming what differs.
    """
    try:
        made = Tuning.from_dict(content)
    except ValueError as error:
        raise InputError(
            f"data/07_model_output/{name}/trials.json does not read as the trials of a tuning ({error}): delete it and "
            f"run `kedro run --pipelines={name}` again, which takes finished runs from their checkpoints."
        ) from error
    now = {"tune": plain(tune), **tune.applied(experiment).shared()}
    check_settings(f"The trials of {name} were", {"tune": made.tune, **made.settings}, now)
    return made


def chosen(tuning: Tuning, experiment: str) -> Tuned:
    """Return what comparisons of the experiment `experiment` read: each method's trial of highest accuracy."""

    def choice(trials: list[Trial]) -> TunedMethod:
        best, configured = highest(trials), trials[0]
        return TunedMethod(
            values=best.values,
            configured=configured.values,
            validation=best.validation or 0.0,
            configured_validation=configured.validation,
            trials=len(trials),
            run_ids=best.run_ids,
        )

    return Tuned(
        experiment=experiment,
        seeds=tuning.seeds,
        settings=tuning.settings,
        key=tuning.key,
        run_id=tuning.run_id,
        methods={method: choice(trials) for method, trials in tuning.methods.items()},
    )


def federation(name: str, experiment: Experiment, raw_folder: Path) -> FederatedData:
    """Return the data of the trials, made as in any experiment.

    Raises:
        InputError: if a client has no validation samples to choose by.
    """
    made = prepare(experiment, raw_folder)
    for seed, clients in made.partitions.items():
        for client, own in clients.items():
            if not len(own.validation):
                raise InputError(
                    f"{name} chooses by validation accuracy, and client {client} has no validation samples with seed "
                    f"{seed}; raise partition.validation_share of {name.removeprefix(TUNE)}, which is "
                    f"{experiment.partition.validation_share}."
                )
    return made
