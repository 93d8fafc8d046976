"""Studies, such as sweeps, tunings and the paper's tables: runs of several methods in several settings.

A run is trained once, even if several cells contain it. Its identity decides whether it is already finished.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.config.studies import CellSettings
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.render import markdown
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs.identity import Job, code_version, identity
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.run import run_all


@dataclass(frozen=True)
class Planned:
    """One cell of a study before its runs, and the job that makes one run per seed.

    If the data of the cell cannot be made, the cell has no keys, and `cell.failed` states the reason.
    """

    cell: Cell
    job: Job

    def finished(self, runs: Mapping[str, FinishedRun], failures: Mapping[str, str]) -> Cell:
        keys = list(self.cell.keys.values())
        failed = self.cell.failed or next((failures[key] for key in keys if key in failures), "")
        return replace(self.cell, runs=[runs[key] for key in keys if key in runs], failed=failed)

    def run(self, seed: int, parent: str) -> FinishedRun:
        """Return the run with one seed, a child of the tracker's run `parent`. A finished run is not trained again."""
        own = replace(self.job.experiment, seeds=[seed])
        data = replace(self.job.data)  # a copy, whose samples are freed after the run
        title = ", ".join(filter(None, (self.cell.label, self.cell.title)))
        (finished,) = run_all(replace(self.job, experiment=own, data=data, parent=parent), title)
        return finished


def plan(name: str, cells: Sequence[CellSettings], raw_folder: Path) -> list[Planned]:
    """Return the cells of the study `name` with their data. Cells with equal data settings share their data."""
    loaded: dict[str, Any] = {}
    made: dict[str, Any] = {}  # the data, or the error for which they cannot be made
    found = []
    for asked in cells:
        experiment, keys = asked.experiment, dict[int, str]()
        same = repr((experiment.of_data(), experiment.public.batch))  # the batch needs enough public samples
        if same not in made:
            try:
                made[same] = prepare(experiment, raw_folder, loaded)
            except InputError as error:
                made[same] = error
        data = made[same]
        failed = f"{asked.where}{data}" if isinstance(data, InputError) else ""  # the job of such a cell is never run
        label = ", ".join(filter(None, (asked.section if asked.part else "", asked.label)))
        job = Job(name, asked.method, experiment, data, label=label)
        if not failed:
            keys = {seed: digest(identity(job, seed)) for seed in experiment.seeds}
        cell = Cell(
            part=asked.part,
            experiment=asked.section,
            label=asked.label,
            method=asked.method,
            settings=job.experiment.shared(),
            hyperparameters=job.hyperparameters(),
            seeds=experiment.seeds,
            keys=keys,
            value=asked.value,
            failed=failed,
        )
        found.append(Planned(cell, job))
    return found


def check_possible(planned: Sequence[Planned]) -> None:
    """Raise InputError if the data of a cell cannot be made; the message names the first such setting."""
    for each in planned:
        if each.cell.failed:
            raise InputError(each.cell.failed)


def in_turn(planned: Sequence[Planned]) -> dict[str, tuple[Planned, int]]:
    """Return the cell and the seed of every run by its key, in the order of training.

    Within a setting, all methods run with one seed before any method runs with the next seed.
    """
    found: dict[str, tuple[Planned, int]] = {}
    settings = groupby(planned, key=lambda each: (each.cell.part, each.cell.experiment, repr(each.cell.value)))
    for _, group in settings:
        runs = [(each, seed, key) for each in group for seed, key in each.cell.keys.items()]
        seeds = list(dict.fromkeys(seed for _, seed, _ in runs))
        for each, seed, key in sorted(runs, key=lambda run: seeds.index(run[1])):
            found.setdefault(key, (each, seed))
    return found


@contextlib.contextmanager
def parent_run(
    name: str, params: Mapping[str, Any], planned: Sequence[Planned], tags: Mapping[str, str]
) -> Iterator[tuple[str, tracking.TrackedRun]]:
    """Yield the key of a study and its run in the tracker, whose children are the runs of the study.

    The key is a hash of all settings and source code on which the study depends. A study with an equal key continues.
    """
    cells = []
    for each in planned:
        code = code_version(type(each.job.create()), each.job.experiment)
        cells.append([each.cell.settings, [each.cell.method, each.cell.hyperparameters, code]])
    key = digest({"settings": params, "cells": cells})
    with tracking.current().run(tracking.Entry(name, name, key, params, tags)) as tracked:
        yield key, tracked


def log_report(
    experiment: str,
    name: str,
    key: str,
    report: Report,
    metrics: Mapping[str, float] | None = None,
    children: Sequence[str] = (),
) -> None:
    """Log a report to the existing or new run with this key. The report's summary and main table describe the run."""
    tables = [markdown.table(block) for block in report.brief if isinstance(block, Table)]
    note = re.sub(" {2,}", " ", "\n\n".join([report.summary, *tables]))  # a tag has 8,000 characters
    tags = {"kind": "comparison" if children else "report"}
    with tempfile.TemporaryDirectory() as place:
        report.write(folder := Path(place, "report"))
        with tracking.current().run(tracking.Entry(experiment, name, key, {}, tags)) as tracked:
            tracked.report(folder, note, metrics or {}, children)


def log_study(name: str, key: str, made: Report) -> Report:
    made = replace(made, folder=key[:8])
    log_report(name, name, key, made)
    return made
