"""Studies, such as sweeps, tunings and the paper's tables: runs of several methods in several settings.

The identity of a run decides what is missing: a run that is finished, or that another cell has too, is not trained
again.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from ktpfl_pipeline import tracking
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.config.studies import CellSettings
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.pipelines.data.federation import prepare
from ktpfl_pipeline.pipelines.federated_training.arithmetic import settle
from ktpfl_pipeline.pipelines.federated_training.identity import Job, identity, identity_of_method
from ktpfl_pipeline.pipelines.federated_training.runs import run_all
from ktpfl_pipeline.reports.model import Table
from ktpfl_pipeline.reports.render import markdown
from ktpfl_pipeline.reports.report import Report


@dataclass(frozen=True)
class Planned:
    """One cell of a study before its results are looked at.

    Attributes:
        asked: its settings.
        job: the runs, one for each seed.
        keys: by seed, what identifies the run; empty where the data cannot be made.
        failed: why the data cannot be made.
    """

    asked: CellSettings
    job: Job
    keys: dict[int, str]
    failed: str = ""

    @property
    def samples(self) -> float | None:
        """Private samples of a client, the mean over clients and seeds; None where the data cannot be made."""
        if self.failed:
            return None
        partitions = self.job.data.partitions.values()
        return fmean(sum(map(len, own)) for partition in partitions for own in partition.values())

    def cell(self, runs: Mapping[str, FinishedRun], failures: Mapping[str, str] | None = None) -> Cell:
        """Return the cell with those of its runs that are finished.

        Args:
            runs: finished runs, by key.
            failures: why runs failed, by key.
        """
        asked, known = self.asked, failures or {}
        return Cell(
            part=asked.part,
            experiment=asked.section,
            label=asked.label,
            method=asked.method,
            settings=self.job.experiment.shared(),
            hyperparameters=self.job.hyperparameters(),
            seeds=self.job.experiment.seeds,
            keys=self.keys,
            runs=[runs[key] for key in self.keys.values() if key in runs],
            value=asked.value,
            failed=self.failed or next((known[key] for key in self.keys.values() if key in known), ""),
            samples=self.samples,
        )

    def run(self, seed: int, parent: str) -> FinishedRun:
        """Run the method with one seed to its end, or take the run as it is where it finished before.

        Args:
            seed: of the run.
            parent: the tracker's run that it is below.
        """
        own = replace(self.job.experiment, seeds=[seed])
        data = replace(self.job.data)  # with samples of its own, which go when the run is finished
        title = ", ".join(filter(None, (self.asked.label, title_of(self.asked.method))))
        (finished,) = run_all(replace(self.job, experiment=own, data=data, parent=parent), title)
        return finished


def plan(name: str, cells: Sequence[CellSettings], raw_folder: Path) -> list[Planned]:
    """Return the cells of a study with their data, which are made once for all that have the same.

    Args:
        name: the study's.
        cells: in the order in which they are run.
        raw_folder: where samples are, and where downloads go.
    """
    loaded: dict[str, Any] = {}
    made: dict[str, Any] = {}  # the data, or why they cannot be made
    found = []
    for cell in cells:
        asked = cell.experiment
        same = repr((asked.of_data(), asked.public.batch))  # which needs as many public samples
        if same not in made:
            try:
                made[same] = prepare(asked, raw_folder, loaded)
            except InputError as error:
                made[same] = error
        data, keys, failed = made[same], {}, ""
        label = ", ".join(filter(None, (cell.section if cell.part else "", cell.label)))
        job = Job(name, cell.method, asked, data, label=label)
        if isinstance(data, InputError):
            failed = str(data)  # the job is never run
        else:
            job = replace(job, experiment=settle(asked, data, name))
            keys = {seed: digest(identity(job, seed)) for seed in asked.seeds}
        found.append(Planned(cell, job, keys, failed))
    return found


def check_possible(planned: Sequence[Planned]) -> None:
    """Check that the data of all cells can be made.

    Raises:
        InputError: naming the first setting whose data cannot.
    """
    for each in planned:
        if each.failed:
            raise InputError(f"{each.asked.where}{each.failed}")


def in_turn(planned: Sequence[Planned]) -> dict[str, tuple[Planned, int]]:
    """Return every run by its key, with its cell and its seed, in the order in which they are run.

    Within a setting all methods run with one seed before the next.
    """
    found: dict[str, tuple[Planned, int]] = {}
    for _, cells in groupby(planned, key=lambda each: (each.asked.part, each.asked.section, repr(each.asked.value))):
        runs = [(each, seed, key) for each in cells for seed, key in each.keys.items()]
        seeds = list(dict.fromkeys(seed for _, seed, _ in runs))
        for each, seed, key in sorted(runs, key=lambda run: seeds.index(run[1])):
            found.setdefault(key, (each, seed))
    return found


@contextlib.contextmanager
def parent_run(
    name: str, params: Mapping[str, Any], planned: Sequence[Planned], tags: Mapping[str, str]
) -> Iterator[tuple[str, tracking.TrackedRun]]:
    """Yield the key and the tracker's run of a study, below which its runs are.

    The key is a hash of all settings and the source that the study depends on: an equal one is continued.

    Args:
        name: the study's.
        params: its settings, as they are logged.
        planned: its cells.
        tags: of the run.
    """
    jobs = [each.job for each in planned]
    key = digest(
        {
            "settings": params,
            "cells": [[job.experiment.shared(), identity_of_method(job.method, job.experiment)] for job in jobs],
        }
    )
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
    """Log a report to the run with this key, an earlier one or a new one; its summary and main table describe the run.

    Earlier files of these names are replaced. It takes the arguments of `tracking.Entry` and `TrackedRun.report`.
    """
    tables = [markdown.table(block) for block in report.brief if isinstance(block, Table)]
    note = re.sub(" {2,}", " ", "\n\n".join([report.summary, *tables]))  # a tag has 8,000 characters
    tags = {"kind": "comparison" if children else "report"}
    with tempfile.TemporaryDirectory() as place:
        report.write(folder := Path(place, "report"))
        with tracking.current().run(tracking.Entry(experiment, name, key, {}, tags)) as tracked:
            tracked.report(folder, note, metrics or {}, children)
