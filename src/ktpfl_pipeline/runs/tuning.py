"""The search for an experiment's hyperparameters on validation data, with the same budget for each method.

A candidate is a cell of a study with one ordinary run per seed. Its results on test samples are not kept.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.analysis.study import Cell, Study, highest, read
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import TUNE, CellSettings, Tune
from ktpfl_pipeline.config.tuned import Tuned, TunedMethod, to_text
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.rng import derive
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports import tuning
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs import progress
from ktpfl_pipeline.runs.run import run_all
from ktpfl_pipeline.runs.search import search
from ktpfl_pipeline.runs.study import Planned, check_possible, log_study, parent_run, plan
from ktpfl_pipeline.tracking import Ending

logger = logging.getLogger(__name__)


def run_tuning(
    tune: Tune, experiment: Experiment, raw_folder: Path, *, name: str, methods: Sequence[str]
) -> dict[str, Any]:
    """Run all candidates of all methods with every seed, resume unfinished runs, and return the results.

    A method without a search space runs once, with its configured hyperparameters. Raises InputError if the data cannot
    be made, a client has no validation samples, or, after all other runs, all candidates of a method diverged.
    """
    section, at = name.removeprefix(TUNE), tune.applied(experiment)
    planned = plan(name, [CellSettings(section, "", method, at) for method in methods], raw_folder)
    check_possible(planned)
    check_validation(name, at, planned[0].job.data)
    with parent_run(name, flat(plain(tune)), planned, {"kind": "tuning", "tune": name}) as (key, tracked):
        progress.expect(sum(map(tune.most, methods)))
        found = [search_method(tune, each, tracked.run_id) for each in planned]
        if failed := [cells[0].method for cells in found if all(cell.failed for cell in cells)]:
            raise InputError(
                f"{name}: all candidates of {' and of '.join(failed)} diverged, and the other methods are finished. "
                f"Lower training.learning_rate of {section}, which trains all candidates again, or change what "
                f"{name}.spaces has for the method, or leave it out of {section}.compare."
            )
        best = {f"validation/{cells[0].method}": highest(cells).score or 0.0 for cells in found}
        tracked.finish(Ending(best))
    return Study(plain(tune), key, tracked.run_id, [cell for cells in found for cell in cells]).to_dict()


def search_method(tune: Tune, planned: Planned, parent: str) -> list[Cell]:
    """Run the candidates of one method as children of the tracker's run `parent`."""
    method, found = planned.cell.method, list[Cell]()
    space, configured = tune.space(method), planned.cell.hyperparameters

    def evaluate(changes: dict[str, Any]) -> float | None:
        found.append(run_candidate(planned, changes, len(found) + 1, parent))
        return found[-1].score

    seed = derive(tune.seeds[0], "tuning", method)  # the draws do not depend on the other tuned methods
    search(space, {entry: configured[entry] for entry in space}, tune.trials, seed, evaluate)
    progress.fewer(tune.most(method) - len(found))
    return found


def run_candidate(planned: Planned, changes: dict[str, Any], number: int, parent: str) -> Cell:
    """Run one candidate, the configured hyperparameters with `changes`, with every seed. `number` counts from 1."""
    job, method = planned.job, planned.cell.method
    label = ", ".join(f"{entry}={value}" for entry, value in changes.items())
    experiment = replace(job.experiment, methods={method: {**planned.cell.hyperparameters, **changes}})
    job = replace(job, experiment=experiment, parent=parent, label=label, chooses=True)
    title = ", ".join(filter(None, (f"{title_of(method)}, trial {number}", label)))
    cell = replace(planned.cell, keys={}, hyperparameters=job.hyperparameters(), value=changes, label=label)
    try:
        runs = run_all(job, title)
    except DivergedError as error:
        logger.warning("%s: %s", title, error)
        return replace(cell, failed=str(error))
    result = summarize(runs, cell.hyperparameters)
    return replace(cell, kept=replace(result, runs=[]))


def chosen(study: Study, experiment: str) -> Tuned:
    """Return the tuned hyperparameters: each method's candidate with the highest validation accuracy."""

    def choice(cells: list[Cell]) -> TunedMethod:
        best, configured = highest(cells), cells[0]
        return TunedMethod(
            values=best.hyperparameters,
            configured=configured.hyperparameters,
            validation=best.score or 0.0,
            configured_validation=configured.score,
            trials=len(cells),
            run_ids=best.result.run_ids if best.result else [],
        )

    return Tuned(
        experiment=experiment,
        seeds=list(study.asked["seeds"]),
        settings=study.cells[0].settings,
        key=study.key,
        run_id=study.run_id,
        methods={method: choice(cells) for method, cells in study.methods.items()},
    )


def check_validation(name: str, experiment: Experiment, data: FederatedData) -> None:
    """Raise InputError if a client has no validation samples; the message names the first such client."""
    for seed, clients in data.partitions.items():
        for client, own in clients.items():
            if not len(own.validation):
                raise InputError(
                    f"{name} chooses by validation accuracy, and client {client} has no validation samples with seed "
                    f"{seed}; raise partition.validation_share of {name.removeprefix(TUNE)}, which is "
                    f"{experiment.partition.validation_share}."
                )


def choose(tune: Tune, experiment: Experiment, results: dict[str, Any], *, name: str) -> str:
    """Return the text with the tuned hyperparameters, which comparisons read.

    Raises InputError if the results were made with other settings.
    """
    return _choice(tune, experiment, results, name)[1]


def report_tuning(tune: Tune, experiment: Experiment, results: dict[str, Any], *, name: str) -> Report:
    """Return the report on a tuning, and log it to the run of the tuning.

    Raises InputError if the results were made with other settings.
    """
    study, values = _choice(tune, experiment, results, name)
    return log_study(name, study.key, tuning.build(name, study, values))


def _choice(tune: Tune, experiment: Experiment, results: dict[str, Any], name: str) -> tuple[Study, str]:
    """Return the study of `run_tuning` and the text with the tuned hyperparameters; see `choose` for errors."""
    study = read(name, results, plain(tune), [tune.applied(experiment).shared()])
    return study, to_text(chosen(study, name.removeprefix(TUNE)))
