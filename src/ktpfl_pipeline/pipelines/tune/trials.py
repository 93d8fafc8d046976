"""All trials of a tuning, below one run of its own in the tracker."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.results import VALIDATION, summarise
from ktpfl_pipeline.analysis.trials import Trial, Tuning, highest
from ktpfl_pipeline.config.schema import TUNE, Experiment, Tune, create_method
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import TITLES
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.federated_training.progress import Progress
from ktpfl_pipeline.pipelines.federated_training.runs import code_version, run_seed
from ktpfl_pipeline.pipelines.partition.nodes import join, partition_clients
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set
from ktpfl_pipeline.pipelines.tune.search import search, stream

logger = logging.getLogger(__name__)


def run_all(name: str, tune: Tune, experiment: Experiment, methods: Sequence[str], raw_folder: Path) -> dict[str, Any]:
    """Run all candidates of all methods with every seed of the tuning, and return the `Tuning` as plain values.

    A trial is made of ordinary runs, one a seed. Finished ones are found by their keys and not trained again.

    Args:
        name: the tuning's.
        tune: its settings.
        experiment: what is tuned.
        methods: all that its comparison runs; those without a space run once, as configured.
        raw_folder: where the images are.
    """
    at = tune.applied(experiment)
    data = federation(name, at, raw_folder)
    key = identity(tune, at, methods)
    with tracking.current().run(name, name, key, flat(tune.model_dump()), {"kind": "tuning", "tune": name}) as tracked:
        found = {method: tune_method(name, tune, at, method, data, tracked.run_id) for method in methods}
        best = {f"validation/{method}": highest(trials).validation or 0.0 for method, trials in found.items()}
        tracked.finish(best, {}, {})
    return asdict(Tuning(tune.model_dump(), at.shared(), key, tracked.run_id, found))


def tune_method(
    name: str, tune: Tune, experiment: Experiment, method: str, data: FederatedData, parent: str
) -> list[Trial]:
    """Run the candidates of one method.

    Raises:
        InputError: if the training of all of them diverges.
    """
    space, found = tune.space(method), list[Trial]()
    configured = asdict(create_method(method, experiment.methods.get(method, {})))

    def evaluate(changes: dict[str, Any]) -> float | None:
        point = experiment.model_copy(update={"methods": {method: {**configured, **changes}}})
        found.append(run_trial(name, method, point, changes, data, parent, len(found) + 1))
        return found[-1].validation

    search(space, {entry: configured[entry] for entry in space}, tune.trials, stream(tune.seeds[0], method), evaluate)
    if all(trial.validation is None for trial in found):
        raise InputError(
            f"{name}: all {len(found)} candidates of {method} diverged; lower training.learning_rate of "
            f"{name.removeprefix(TUNE)}, or change what {name}.spaces has for the method."
        )
    return found


def run_trial(
    name: str, method: str, point: Experiment, changes: dict[str, Any], data: FederatedData, parent: str, number: int
) -> Trial:
    """Run one candidate with every seed."""
    values = asdict(create_method(method, point.methods[method]))
    label = ", ".join(f"{entry}={value}" for entry, value in changes.items())
    title = ", ".join(filter(None, (f"{TITLES.get(method, method)}, trial {number}", label)))
    try:
        with Progress(title, point) as progress:
            runs = [run_seed(name, method, point, data, seed, progress, parent, label) for seed in point.seeds]
    except DivergedError as error:
        logger.warning("%s: %s", title, error)
        return Trial(changes, values, [], [])
    per_seed = summarise(runs, values).final[VALIDATION].per_seed
    return Trial(changes, values, per_seed, [run.run_id for run in runs])


def federation(name: str, experiment: Experiment, raw_folder: Path) -> FederatedData:
    """Return the data of the trials, made as in any experiment.

    Raises:
        InputError: if a client has no validation images to choose by.
    """
    private = load_private(experiment, raw_folder)
    public_set = sample_public_set(experiment, private, load_public(experiment, raw_folder, private))
    made: FederatedData = join(private, public_set, partition_clients(experiment, private, public_set))
    for seed, clients in made.partitions.items():
        for client, own in clients.items():
            if not len(own.validation):
                raise InputError(
                    f"{name} chooses by validation accuracy, and client {client} has no validation images with seed "
                    f"{seed}; raise partition.validation_share of {name.removeprefix(TUNE)}, which is "
                    f"{experiment.partition.validation_share}."
                )
    return made


def identity(tune: Tune, experiment: Experiment, methods: Sequence[str]) -> str:
    """Return a hash of all settings and the source that a tuning depends on: an equal one is continued."""
    made = {method: create_method(method, experiment.methods.get(method, {})) for method in methods}
    settings = {
        "tune": tune.model_dump(),
        "experiment": experiment.shared(),
        "methods": [
            [method, asdict(kind), code_version(type(kind), experiment.architectures)] for method, kind in made.items()
        ],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
