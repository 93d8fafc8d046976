"""The reproduction of the KT-pFL paper's tables and figures: the remaining runs, their time, and their training.

The experiments are a setting, as in a sweep. Arguments that functions share: `paper`, its section of the configuration;
`planned`, the cells; `folder`, the folder of finished runs, with one file per key; `failures`, the reasons of failed
runs by key.
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

from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.studies import PAPER, Paper
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import alone, content_of, is_locked, replacing
from ktpfl_pipeline.reports import reproduction
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs import progress, study
from ktpfl_pipeline.runs.identity import device_name
from ktpfl_pipeline.runs.run import WAITING, checkpoints_of
from ktpfl_pipeline.runs.study import Planned, in_turn, parent_run

logger = logging.getLogger(__name__)
MEASURED, BESIDE = "finished seeds", "other methods"
"""The origin of a run's estimated seconds: runs of the cell, or runs of its column."""


def finished(planned: Sequence[Planned], folder: Path) -> dict[str, FinishedRun]:
    """Return the finished runs by key. A damaged file counts as missing."""
    found = {key: kept(key, folder) for key in in_turn(planned)}
    return {key: run for key, run in found.items() if run}


def kept(key: str, folder: Path) -> FinishedRun | None:
    """Return the finished run with this key, or None if its file is missing or damaged."""
    try:
        return FinishedRun.from_dict(json.loads(content_of(folder / f"{key}.json")))
    except (OSError, ValueError):
        return None


def keep(run: FinishedRun, folder: Path) -> None:
    with replacing(folder / f"{run.key}.json", summed=True) as partial:
        partial.write_text(json.dumps(run.to_dict()), encoding="utf-8")


def run(each: Planned, seed: int, key: str, folder: Path, parent: str = "") -> None:
    """Finish a run, from its checkpoint if it has one, keep its numbers, and delete its checkpoint.

    With the paper's networks a checkpoint takes 0.65 GB.
    """
    keep(each.run(seed, parent), folder)
    if checkpoints := checkpoints_of(each.job, seed, key):
        shutil.rmtree(checkpoints, ignore_errors=True)


def plan(paper: Paper, parameters: dict[str, Any], raw_folder: Path, folder: Path) -> list[Planned]:
    """Return the cells of the paper, and print every cell, its finished runs, and the remaining hours."""
    planned = study.plan(PAPER, parsing.paper_cells(paper, parameters), raw_folder)
    print(reproduction.plan_text(cells(planned, folder, {})))  # noqa: T201
    for why in dict.fromkeys(each.cell.failed for each in planned if each.cell.failed):
        logger.error(why)  # the table shows only its first words
    return planned


def train(paper: Paper, planned: Sequence[Planned], folder: Path) -> dict[str, str]:
    """Train all unfinished runs, unless `paper.train` is false, and return the reasons of failures by key.

    Several processes may do so at once: a run that another process trains comes last.
    """
    done, failures = finished(planned, folder), dict[str, str]()
    left = {key: run for key, run in in_turn(planned).items() if key not in done}
    if not left or not paper.train:
        return failures
    progress.expect(len(left))
    with parent_run(PAPER, {"cells": str(len(planned))}, planned, {"kind": PAPER}) as (_, tracked):
        while left:
            key = next((key for key in left if not is_locked(folder / f"{key}.lock")), next(iter(left)))
            (each, seed), lock = left.pop(key), folder / f"{key}.lock"
            try:
                with alone(lock, partial(logger.warning, WAITING, each.job.method, seed, PAPER)):
                    if kept(key, folder):  # another process finished this run in the meantime
                        progress.fewer(1)
                    else:
                        run(each, seed, key, folder, tracked.run_id)
                    shutil.rmtree(lock, ignore_errors=True)
            except Exception as error:  # the other cells can be run after any error
                failures[key] = str(error).partition("\n")[0] or type(error).__name__
                cell, expected = each.cell, isinstance(error, InputError)
                where = f"{cell.part}, {cell.experiment}, {cell.label}, {cell.method}, seed {seed}"
                logger.error("%s failed; the other runs continue: %s", where, failures[key], exc_info=not expected)
    return failures


def cells(planned: Sequence[Planned], folder: Path, failures: Mapping[str, str]) -> list[Cell]:
    """Return the cells with their finished runs and the estimated seconds of a run."""
    runs = finished(planned, folder)
    found = [each.finished(runs, failures) for each in planned]
    return [judged(cell, found) for cell in found]


def collect(paper: Paper, planned: Sequence[Planned], folder: Path, failures: Mapping[str, str]) -> Evidence:
    parts = {name: (part.title, part.shows) for name, part in paper.chosen().items()}
    devices = {device_name(each.job.experiment.compute) for each in planned} - {"cpu"}
    machine = ", ".join([*sorted(devices), here_and_now().machine])
    return Evidence(paper.scale, parts, cells(planned, folder, failures), [machine])


def judged(cell: Cell, others: Sequence[Cell]) -> Cell:
    """Return a cell with the seconds of a run, from its own runs or else from runs of its column, if there are any."""
    column = (cell.part, cell.experiment, cell.label)
    beside = [run for each in others if (each.part, each.experiment, each.label) == column for run in each.runs]
    for runs, how in ((cell.runs, MEASURED), (beside, BESIDE)):
        if runs:
            return replace(cell, seconds=fmean(run.seconds("round") for run in runs), judged=how)
    return cell


def report_paper(evidence: Evidence) -> Report:
    return reproduction.build(evidence, here_and_now())
