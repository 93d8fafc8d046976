"""Runs with more rounds: they reuse the finished rounds of an equal run with fewer rounds."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.metrics import ADAPTED
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.methods import METHODS
from ktpfl_pipeline.runs.identity import CHECKPOINT, Job, run_folder

logger = logging.getLogger(__name__)


def take_over(job: Job, seed: int, settings: Mapping[str, Any], folder: Path, schedule: Schedule) -> None:
    """Write the checkpoint of a run that has none, from the longest equal run with fewer rounds, if there is one.

    Apart from wall times, the result equals a run from round 1 bit for bit. `settings` is the identity of the run, and
    `folder` that of its checkpoint, next to the folders of the method's other runs.
    """
    if (folder / CHECKPOINT).exists() or not rounds_are_equal(job):
        return
    for rounds in range(int(settings["rounds"]) - 1, 0, -1):
        shorter = {**settings, "rounds": rounds}
        earlier = folder.with_name(run_folder(seed, digest(shorter))) / CHECKPOINT
        content = checkpoint.load(earlier, shorter, torch.device("cpu"))
        if content is not None:
            logger.info("%s, seed %d: continues after %s of an earlier run.", job.method, seed, plural(rounds, "round"))
            history = [as_scheduled(record, schedule) for record in content["history"]]
            checkpoint.save(folder / CHECKPOINT, {**content, "settings": dict(settings), "history": history})
            return


def as_scheduled(record: dict[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Return the record of a round without the evaluations that the longer run does not make in this round.

    The last rounds of a run have additional evaluations. In the longer run, they would wrongly count in final values.
    """
    if record["round"] not in schedule.evaluations:
        loss = {phase: values for phase, values in record["loss"].items() if phase != "test"}
        return {**record, "accuracy": {}, "measures": {}, "loss": loss}
    adapts = record["round"] in schedule.full_evaluations
    accuracy = {at: values for at, values in record["accuracy"].items() if adapts or not at.startswith(ADAPTED)}
    measures = {name: values for name, values in record["measures"].items() if name != "global_accuracy"}
    return {**record, "accuracy": accuracy, "measures": measures}


def rounds_are_equal(job: Job) -> bool:
    """Return whether a round is the same in runs with more and with fewer rounds.

    A round depends on the number of rounds if a learning rate, the noise, the last cohort or the method depends on it.
    For a method outside the registry the answer is always false, because its behavior is not known.
    """
    experiment = job.experiment
    recipes = (experiment.training, experiment.distillation)
    return (
        all(recipe.schedule.kind in ("constant", "step") for recipe in recipes)
        and job.keeps_models  # real clients keep the models of their rounds themselves
        and experiment.training.privacy is None
        and experiment.evaluation.patience is None
        and not experiment.evaluation.closing_round
        and job.method in METHODS
        and not METHODS[job.method].kind.follows_rounds
    )
