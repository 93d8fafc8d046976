"""Running what is left of the paper's tables and figures, one run after the other, below one run in the tracker."""

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ktpfl_pipeline import tracking
from ktpfl_pipeline.config.studies import PAPER
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.pipelines.federated_training.runs import checkpoints_of, run_all
from ktpfl_pipeline.pipelines.paper.planning import Planned
from ktpfl_pipeline.pipelines.whole_files import replacing

logger = logging.getLogger(__name__)


def run_left(planned: Sequence[Planned]) -> dict[str, str]:
    """Run all that is not finished, and return why runs failed, by key.

    The order is that of the parts; within a column all methods run with one seed before the next. A finished run keeps
    its numbers, and its checkpoint goes: those of the paper's networks fill 0.65 GB each.
    """
    left = {key: (each, seed) for each, seed, key in _in_turn(planned) if each.finished(key) is None}
    failures: dict[str, str] = {}
    if not left:
        return failures
    progress.expect(len(left))
    key = digest({"cells": sorted({f"{each.experiment} {each.label} {each.job.method}" for each in planned})})
    with tracking.current().run(
        tracking.Entry(PAPER, PAPER, key, {"cells": str(len(planned))}, {"kind": PAPER})
    ) as tracked:
        for key, (each, seed) in left.items():
            try:
                _run(each, seed, key, tracked.run_id)
            except Exception as error:  # whatever it is, the other cells can be run
                failures[key] = str(error).partition("\n")[0] or type(error).__name__
                where = f"{each.part}, {each.experiment}, {each.label}, {each.job.method}, seed {seed}"
                expected = isinstance(error, InputError)
                logger.error("%s failed; the other runs continue: %s", where, failures[key], exc_info=not expected)
    return failures


def _in_turn(planned: Sequence[Planned]) -> Iterator[tuple[Planned, int, str]]:
    """Yield every run with its seed and key, in the order in which they are run."""
    for _, column in groupby(planned, key=lambda each: (each.part, each.experiment, each.label)):
        runs = [(each, seed, key) for each in column for seed, key in each.keys.items()]
        seeds = list(dict.fromkeys(seed for _, seed, _ in runs))
        yield from sorted(runs, key=lambda run: seeds.index(run[1]))


def _run(each: Planned, seed: int, key: str, parent: str) -> None:
    """Run one method with one seed to its end, keep its numbers, and remove its checkpoint."""
    own = replace(each.job.experiment, seeds=[seed])
    data = replace(each.job.data)  # with samples of its own, which go when it is finished
    job = replace(each.job, experiment=own, data=data, parent=parent, label=f"{each.experiment}, {each.label}")
    (finished,) = run_all(job)
    with replacing(each.file(key)) as partial:
        partial.write_text(json.dumps(finished.to_dict()), encoding="utf-8")
    if folder := checkpoints_of(job, seed, key):
        shutil.rmtree(folder, ignore_errors=True)
