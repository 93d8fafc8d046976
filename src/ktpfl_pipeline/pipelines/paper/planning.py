"""What the paper's tables and figures take: every cell, which of its runs are done, and how long the others take."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ktpfl_pipeline.analysis.cells import Cell
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.config.parsing import paper_columns
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import PAPER, Paper
from ktpfl_pipeline.core import executors
from ktpfl_pipeline.core.architectures import dealt
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.metrics import LAST
from ktpfl_pipeline.core.settings import Compute
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import find
from ktpfl_pipeline.pipelines.federated_training.arithmetic import Arithmetic, settled, trial
from ktpfl_pipeline.pipelines.federated_training.identity import Job, identity
from ktpfl_pipeline.pipelines.prepare import prepare
from ktpfl_pipeline.pipelines.whole_files import content_of

FORWARD = 1 / 3
"""Of a training step's time, what a prediction of as many samples takes."""
MEASURED, BESIDE, PROBE = "finished seeds", "other methods", "probe"
"""How the seconds of a run are known: from runs of the cell, of its column, or from training steps timed here."""


@dataclass(frozen=True)
class Planned:
    """One method in one column of a table or figure, before its results are looked at.

    Attributes:
        part: the table or figure.
        label: what the setting is called there.
        job: the runs, one for each seed.
        keys: by seed, what identifies the run; empty where the data cannot be made.
        folder: where finished runs are kept, each in a file named by its key.
        failed: why the data cannot be made.
    """

    part: str
    label: str
    job: Job
    experiment: str
    keys: dict[int, str]
    folder: Path
    failed: str = ""

    @property
    def samples(self) -> float | None:
        """Private samples of a client, the mean over clients and seeds; None where the data cannot be made."""
        if self.failed:
            return None
        partitions = self.job.data.partitions.values()
        return fmean(sum(map(len, own)) for partition in partitions for own in partition.values())

    def file(self, key: str) -> Path:
        """Return the file of a finished run."""
        return self.folder / f"{key}.json"

    def finished(self, key: str) -> FinishedRun | None:
        """Return a finished run; None where there is none, or its file is not whole."""
        try:
            return FinishedRun.from_dict(json.loads(content_of(self.file(key))))
        except (OSError, ValueError):
            return None


def planned(paper: Paper, parameters: Mapping[str, Any], raw_folder: Path, folder: Path) -> list[Planned]:
    """Return every cell of the parts that are asked for; data that cannot be made are noted in their cells.

    Args:
        paper: the section.
        parameters: all sections.
        raw_folder: where samples are, and where downloads go.
        folder: of finished runs.

    Raises:
        InputError: if a setting of a column cannot be.
    """
    loaded: dict[str, Any] = {}
    made: dict[str, FederatedData | InputError] = {}
    found = []
    for name, part in paper.chosen().items():
        for experiment, label, configured in paper_columns(name, paper, parameters):
            asked, for_all = configured, _data(configured, raw_folder, loaded, made)
            if isinstance(for_all, FederatedData):
                asked = settled(asked, for_all, PAPER)
            for method in part.methods:
                settings = _validated(asked, method, paper.validation_share)
                data = _data(settings, raw_folder, loaded, made)
                job = Job(PAPER, method, settings, data)  # type: ignore[arg-type]  # one without data is never run
                keys, failed = {}, str(data) if isinstance(data, InputError) else ""
                if not failed:
                    keys = {seed: digest(identity(job, seed)) for seed in asked.seeds}
                found.append(Planned(name, label, job, experiment, keys, folder, failed))
    return found


def cells(planned: Sequence[Planned], failures: Mapping[str, str]) -> list[Cell]:
    """Return the cells with what is finished of each, and how long a run of it takes.

    Args:
        planned: the cells.
        failures: why runs failed, by key.
    """
    runs = {key: run for each in planned for key in each.keys.values() if (run := each.finished(key))}
    found = [
        Cell(
            part=each.part,
            experiment=each.experiment,
            label=each.label,
            method=each.job.method,
            settings=each.job.experiment.settings(),
            hyperparameters=each.job.hyperparameters(),
            seeds=each.job.experiment.seeds,
            samples=each.samples,
            keys=each.keys,
            runs=[runs[key] for key in each.keys.values() if key in runs],
            failed=each.failed or next((failures[key] for key in each.keys.values() if key in failures), ""),
        )
        for each in planned
    ]
    return [judged(cell, each.job, found) for cell, each in zip(found, planned, strict=True)]


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
    further = max(experiment.evaluation.epochs(epochs), default=0)
    evaluations = Schedule(
        experiment.rounds, evaluate_every=experiment.evaluate_every, evaluate_last=experiment.evaluate_last
    ).evaluations
    adapted = min(LAST, len(evaluations))
    total = 0.0
    for n, architecture in dealt(experiment.architectures, sorted(own.partition)).items():
        train, test = len(own.partition[n].train), len(own.partition[n].test)
        distilled = public * (experiment.distillation.epochs + FORWARD)
        each = experiment.participation * (epochs * train + distilled)
        evaluated = len(evaluations) * 2 * FORWARD * test + adapted * further * train
        samples = experiment.rounds * each + evaluated
        total += samples * times[architecture][0] / batch
    asked = experiment.compute
    return total / executors.parallel(asked.executor, asked.threads, Compute(asked.device).place())


def _validated(experiment: Experiment, method: str, share: float) -> Experiment:
    """Return the settings for a method: with a share of validation samples where the method chooses on them.

    They come out of its training samples; test samples are the same.
    """
    if experiment.partition.validation_share or not find(method).kind.fits_validation:
        return experiment
    partition = replace(experiment.partition, validation_share=share)
    return replace(experiment, partition=partition)


def _data(
    experiment: Experiment, raw_folder: Path, loaded: dict[str, Any], made: dict[str, FederatedData | InputError]
) -> FederatedData | InputError:
    """Return an experiment's data, made once for all columns that have the same, or why they cannot be made.

    `public.batch` does not decide the data, but there must be so many public samples.
    """
    same = repr((experiment.of_data(), experiment.public.batch))
    if same not in made:
        try:
            made[same] = prepare(experiment, raw_folder, loaded)
        except InputError as error:
            made[same] = error
    return made[same]
