"""The pipelines of studies: sweeps, tunings and the paper's tables.

A node reads the sections of the configuration that its study varies: all `parameters`, the sections by name, where an
experiment can be changed on the command line. Arguments of nodes: `sweep`, `tune` and `paper`, the section of the
study; `experiment`, the settings of the tuned experiment; `results`, the finished cells.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Study, read
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import PAPER, TUNE, Sweep, Tune
from ktpfl_pipeline.config.tuned import to_text
from ktpfl_pipeline.core.errors import DivergedError, InputError, plural
from ktpfl_pipeline.core.identity import flat
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.step import step
from ktpfl_pipeline.reports import reproduction, tuning
from ktpfl_pipeline.reports import sweep as sweeps
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs import paper as papers
from ktpfl_pipeline.runs import progress
from ktpfl_pipeline.runs.study import check_possible, in_turn, log_report, parent_run, plan
from ktpfl_pipeline.runs.tuning import chosen, run_tuning


def run_sweep(sweep: Sweep, parameters: dict[str, Any], raw_folder: Path, *, name: str) -> dict[str, Any]:
    """Run every method at every value with every seed, resume unfinished runs, and return the results.

    Raises InputError if runs diverged, after all other runs are finished; the message names the diverged runs.
    """
    planned = plan(name, parsing.sweep_cells(name, sweep, parameters), raw_folder)
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


def report_sweep(sweep: Sweep, parameters: dict[str, Any], results: dict[str, Any], *, name: str) -> Report:
    """Return the report on the `results` of `run_sweep`, and log it to the run of the sweep.

    Raises InputError if the results were made with other settings.
    """
    variants = parsing.variants(name, sweep, parameters)
    study = read(name, results, plain(sweep), [variant.shared() for variant in variants])
    led = [each.leading(headline=variants[0].headline) for each in study.variants]
    made = replace(sweeps.build(name, sweep.parameter, led), folder=study.key[:8])
    log_report(name, name, study.key, made)
    return made


def sweep_pipeline(name: str) -> Pipeline:
    settings, cells = [f"params:{name}", "parameters"], f"{name}/cells"
    return Pipeline(
        [
            step(run_sweep, [*settings, "raw_folder"], cells, namespace="sweep", name=name),
            step(report_sweep, [*settings, cells], f"{name}/report", namespace="report", name=name),
        ]
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
    made = replace(tuning.build(name, study, values), folder=study.key[:8])
    log_report(name, name, study.key, made)
    return made


def _choice(tune: Tune, experiment: Experiment, results: dict[str, Any], name: str) -> tuple[Study, str]:
    """Return the study of `run_tuning` and the text with the tuned hyperparameters; see `choose` for errors."""
    study = read(name, results, plain(tune), [tune.applied(experiment).shared()])
    return study, to_text(chosen(study, name.removeprefix(TUNE)))


def tuning_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    settings, cells = [f"params:{name}", f"params:{experiment}"], f"{name}/cells"
    made = [*settings, cells]
    return Pipeline(
        [
            step(run_tuning, [*settings, "raw_folder"], cells, namespace="tune", name=name, methods=methods),
            step(choose, made, f"{experiment}/hyperparameters", namespace="report", name=name),
            step(report_tuning, made, f"{name}/report", namespace="report", name=name),
        ]
    )


def report_paper(evidence: Evidence) -> Report:
    return reproduction.build(evidence, here_and_now())


def paper_pipeline() -> Pipeline:
    """Return the pipeline ``paper``: a plan, the remaining runs, and one report."""
    settings, planned, failures = f"params:{PAPER}", f"{PAPER}_plan", f"{PAPER}_failures"
    evidence, runs = f"{PAPER}_evidence", f"{PAPER}_runs"
    return Pipeline(
        [
            step(papers.plan, [settings, "parameters", "raw_folder", runs], planned, namespace="plan"),
            step(papers.train, [settings, planned, runs], failures, namespace="train"),
            step(papers.collect, [settings, planned, runs, failures], evidence, namespace="report"),
            step(report_paper, evidence, f"{PAPER}/report", namespace="report"),
        ]
    )
