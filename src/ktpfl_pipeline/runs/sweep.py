"""A sweep: the same methods at several values of one setting. `parameters` are all sections of conf/ by name."""

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Study, read
from ktpfl_pipeline.config import parsing, reading
from ktpfl_pipeline.config.studies import Sweep
from ktpfl_pipeline.core.errors import DivergedError, InputError, plural
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.reports import sweep as sweeps
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs import progress
from ktpfl_pipeline.runs.study import check_possible, in_turn, log_study, parent_run, plan


def run_sweep(sweep: Sweep, parameters: dict[str, Any], raw_folder: Path, *, name: str) -> dict[str, Any]:
    """Run every method at every value with every seed, resume unfinished runs, and return the results.

    Raises InputError if runs diverged, after all other runs are finished; the message names the diverged runs.
    """
    planned = plan(name, parsing.sweep_cells(name, sweep, as_written(parameters)), raw_folder)
    check_possible(planned)
    left, runs, diverged = in_turn(planned), dict[str, FinishedRun](), list[str]()
    with parent_run(name, flat(plain(sweep)), planned, {"kind": "sweep", "sweep": name}) as (key, tracked):
        progress.expect(len(left))
        for key_of_run, (each, seed) in left.items():
            try:
                runs[key_of_run] = each.run(seed, tracked.run_id)
            except DivergedError as error:
                diverged.append(f"{each.cell.label}, {each.cell.title}, seed {seed}: {error}")
        if diverged:
            raise InputError(
                f"{len(diverged):,} of {plural(len(left), 'run')} of {name} diverged, and the others are finished. "
                f"Take the values at which they did out of {name}.values, or set {sweep.experiment}.on_divergence to "
                f"skip or restore, and give the same command again. {' '.join(diverged)}"
            )
    return Study(plain(sweep), key, tracked.run_id, [each.finished(runs, {}) for each in planned]).to_dict()


def as_written(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return all sections as they are in conf/. Kedro parses experiments if no pipeline is named in the command."""
    return {name: reading.recall()[name] if is_dataclass(own) else own for name, own in parameters.items()}


def report_sweep(sweep: Sweep, parameters: dict[str, Any], results: dict[str, Any], *, name: str) -> Report:
    """Return the report on the `results` of `run_sweep`, and log it to the run of the sweep.

    Raises InputError if the results were made with other settings.
    """
    variants = parsing.variants(name, sweep, as_written(parameters))
    study = read(name, results, plain(sweep), [variant.shared() for variant in variants])
    led = [each.under(headline=variants[0].headline) for each in study.variants]
    return log_study(name, study.key, sweeps.build(name, sweep.parameter, led))
