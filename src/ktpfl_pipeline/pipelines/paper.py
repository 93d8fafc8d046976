"""The KT-pFL paper's tables and figures, run as far as there is time: what is left, how long it takes, and running it.

Which experiments it runs is a setting, as for a sweep. Arguments that the functions share: `paper`, its section of the
configuration; `planned`, the cells; `folder`, of finished runs, each in a file named by its key; `failures`, why runs
failed, by key.
"""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.studies import PAPER, Paper
from ktpfl_pipeline.core import executors
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import alone, content_of, replacing
from ktpfl_pipeline.methods import find
from ktpfl_pipeline.pipelines import study
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.arithmetic import Arithmetic, trial
from ktpfl_pipeline.pipelines.federated_training.identity import Job, device_name
from ktpfl_pipeline.pipelines.federated_training.runs import WAITING, checkpoints_of, schedule
from ktpfl_pipeline.pipelines.step import step
from ktpfl_pipeline.pipelines.study import Planned, in_turn, parent_run
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.reports.reproduction import build, told

logger = logging.getLogger(__name__)
FORWARD = 1 / 3
"""Of a training step's time, what a prediction of as many samples takes."""
MEASURED, BESIDE, PROBE = "finished seeds", "other methods", "probe"
"""How the seconds of a run are known: from runs of the cell, of its column, or from training steps timed here."""


def finished(planned: Sequence[Planned], folder: Path) -> dict[str, FinishedRun]:
    """Return the finished runs by key; a file that is not whole counts as none."""
    found = {key: kept(key, folder) for key in in_turn(planned)}
    return {key: run for key, run in found.items() if run}


def kept(key: str, folder: Path) -> FinishedRun | None:
    """Return the finished run with this key; None where there is none."""
    try:
        return FinishedRun.from_dict(json.loads(content_of(folder / f"{key}.json")))
    except (OSError, ValueError):
        return None


def keep(run: FinishedRun, folder: Path) -> None:
    """Write a finished run to the file that `finished` reads."""
    with replacing(folder / f"{run.key}.json", summed=True) as partial:
        partial.write_text(json.dumps(run.to_dict()), encoding="utf-8")


def run(each: Planned, seed: int, key: str, folder: Path, parent: str = "") -> None:
    """Finish a run, from its checkpoint if it has one, and keep its numbers.

    Then its checkpoint is removed: those of the paper's networks take 0.65 GB each.
    """
    keep(each.run(seed, parent), folder)
    if checkpoints := checkpoints_of(each.job, seed, key):
        shutil.rmtree(checkpoints, ignore_errors=True)


def plan(paper: Paper, parameters: dict[str, Any], raw_folder: Path, folder: Path) -> list[Planned]:
    """Return the cells of the paper, after printing every cell, what is done, and the hours left."""
    planned = study.plan(PAPER, parsing.paper_cells(paper, parameters), raw_folder)
    print(told(cells(planned, folder, {})))  # noqa: T201
    for why in dict.fromkeys(each.cell.failed for each in planned if each.cell.failed):
        logger.error(why)  # in full: the table has room for its first words
    return planned


def train(paper: Paper, planned: Sequence[Planned], folder: Path) -> dict[str, str]:
    """Run all that is not finished, unless `paper.train` is false, and return why runs failed, by key."""
    done, failures = finished(planned, folder), dict[str, str]()
    left = {key: run for key, run in in_turn(planned).items() if key not in done}
    if not left or not paper.train:
        return failures
    progress.expect(len(left))
    with parent_run(PAPER, {"cells": str(len(planned))}, planned, {"kind": PAPER}) as (_, tracked):
        for key, (each, seed) in left.items():
            lock = folder / f"{key}.lock"
            try:
                with alone(lock, partial(logger.warning, WAITING, each.job.method, seed, PAPER)):
                    if kept(key, folder):  # another process ran it meanwhile
                        progress.fewer(1)
                    else:
                        run(each, seed, key, folder, tracked.run_id)
                    shutil.rmtree(lock, ignore_errors=True)
            except Exception as error:  # whatever it is, the other cells can be run
                failures[key] = str(error).partition("\n")[0] or type(error).__name__
                cell, expected = each.cell, isinstance(error, InputError)
                where = f"{cell.part}, {cell.experiment}, {cell.label}, {cell.method}, seed {seed}"
                logger.error("%s failed; the other runs continue: %s", where, failures[key], exc_info=not expected)
    return failures


def cells(planned: Sequence[Planned], folder: Path, failures: Mapping[str, str]) -> list[Cell]:
    """Return the cells with what is finished of each, and how long a run of it takes."""
    runs = finished(planned, folder)
    found = [each.finished(runs, failures) for each in planned]
    return [judged(cell, each.job, found) for cell, each in zip(found, planned, strict=True)]


def collect(paper: Paper, planned: Sequence[Planned], folder: Path, failures: Mapping[str, str]) -> Evidence:
    """Return all cells with the runs that are finished."""
    parts = {name: (part.title, part.shows) for name, part in paper.chosen().items()}
    devices = {device_name(each.job.experiment.compute) for each in planned} - {"cpu"}
    machine = ", ".join([*sorted(devices), here_and_now().machine])
    return Evidence(paper.scale, parts, cells(planned, folder, failures), [machine])


def report_paper(evidence: Evidence) -> Report:
    """Return the report on all that is finished, next to the paper's numbers."""
    return build(evidence, here_and_now())


def paper_pipeline() -> Pipeline:
    """Return the pipeline ``paper``: a plan, the runs that are left, one report."""
    settings, planned, failures = f"params:{PAPER}", f"{PAPER}_plan", f"{PAPER}_failures"
    evidence, runs = f"{PAPER}_evidence", f"{PAPER}_runs"
    return Pipeline(
        [
            step(plan, [settings, "parameters", "raw_folder", runs], planned, namespace="plan"),
            step(train, [settings, planned, runs], failures, namespace="train"),
            step(collect, [settings, planned, runs, failures], evidence, namespace="report"),
            step(report_paper, evidence, f"{PAPER}/report", namespace="report"),
        ]
    )


def judged(cell: Cell, job: Job, others: Sequence[Cell]) -> Cell:
    """Return a cell with the seconds of a run, from what is known best: its own runs, its column's, or a probe."""
    column = (cell.part, cell.experiment, cell.label)
    beside = [run for each in others if (each.part, each.experiment, each.label) == column for run in each.runs]
    for runs, how in ((cell.runs, MEASURED), (beside, BESIDE)):
        if runs:
            return replace(cell, seconds=fmean(run.seconds("round") for run in runs), judged=how)
    return replace(cell, seconds=probe(job), judged=PROBE) if cell.left else cell


def probe(job: Job) -> float:
    """Return the seconds of a run, judged by training steps of each architecture that are timed for a moment here.

    Counted are local and distillation epochs, predictions, evaluation, and adaptation in the last evaluations; not what
    a method does beside, nor the server. A cluster is taken to have the workers that this machine would have.
    """
    experiment, own = job.experiment, job.data.seeds[job.experiment.seeds[0]]
    way = Arithmetic(experiment.compute.dtype, experiment.compute.memory_format)
    times, batch = trial(experiment, job.data, [way]), experiment.training.batch_size
    epochs, exchanged = experiment.training.epochs, "predictions" in find(job.method).kind.exchanges
    public = experiment.public.batch * exchanged
    further = sum(experiment.evaluation.epochs(epochs))  # each number is trained again from the same models
    rounds = schedule(experiment)
    total = 0.0
    for n, architecture in dealt(experiment.architectures, sorted(own.partition)).items():
        train, test = len(own.partition[n].train), len(own.partition[n].test)
        distilled = public * (experiment.distillation.epochs + FORWARD)
        each = experiment.participation * (epochs * train + distilled)
        evaluated = len(rounds.evaluations) * 2 * FORWARD * test + len(rounds.full_evaluations) * further * train
        samples = experiment.rounds * each + evaluated
        total += samples * times[architecture][0] / batch
    return total / executors.parallel(experiment.compute)
