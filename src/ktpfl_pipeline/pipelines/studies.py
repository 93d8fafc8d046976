"""The pipelines of studies: a sweep, a tuning, the paper's tables and figures, and the overview of all comparisons.

Which experiment a sweep or the paper runs is a setting, and may be another for one run, so their nodes take all
`parameters`: the sections of the configuration by name. Further arguments of the nodes:
    sweep, tune, paper: the section of the study.
    experiment: the settings of what is tuned.
    results: what the node that runs a study left, as plain values.
    planned: the cells of the paper, before their results are looked at.
    paper_runs: the folder of the paper's finished runs.
    failures: why runs of the paper failed, by key.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import PAPER, TUNE, Paper, Sweep, Tune
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.pipelines.step import step


def run_sweep(sweep: Sweep, parameters: dict[str, Any], raw_folder: Path, *, name: str) -> dict[str, Any]:
    """Run every method at every value with every seed, resuming unfinished runs, and return the results.

    Raises:
        InputError: if a value cannot be.
    """
    from ktpfl_pipeline.pipelines import sweep as sweeps

    return sweeps.run(name, sweep, parsing.sweep_cells(name, sweep, parameters), raw_folder).to_dict()


def report_sweep(sweep: Sweep, parameters: dict[str, Any], results: dict[str, Any], *, name: str) -> Any:
    """Return the `Report` on a sweep, and log it to the sweep's own run.

    Raises:
        InputError: if the results were made with other settings.
    """
    from ktpfl_pipeline.analysis.study import read
    from ktpfl_pipeline.pipelines.study import log_report
    from ktpfl_pipeline.reports.sweep import build

    settings = [point.shared() for point in parsing.points(name, sweep, parameters)]
    study = read(name, results, plain(sweep), settings)
    made = build(name, sweep.parameter, study.points)
    log_report(name, name, study.key, made)
    return made


def run_tuning(
    tune: Tune, experiment: Experiment, raw_folder: Path, *, name: str, methods: Sequence[str]
) -> dict[str, Any]:
    """Run every method's candidates with every seed of the tuning, resuming unfinished runs, and return the results."""
    from ktpfl_pipeline.pipelines import tuning

    return tuning.run(name, tune, experiment, methods, raw_folder).to_dict()


def _tuned(tune: Tune, experiment: Experiment, results: dict[str, Any], name: str) -> tuple[Any, str]:
    """Return the `Study` of a tuning, and what comparisons read of it."""
    from ktpfl_pipeline.analysis.study import read
    from ktpfl_pipeline.config.tuned import to_text
    from ktpfl_pipeline.pipelines.tuning import chosen

    study = read(name, results, plain(tune), [tune.applied(experiment).shared()])
    return study, to_text(chosen(study, name.removeprefix(TUNE)))


def choose(tune: Tune, experiment: Experiment, results: dict[str, Any], *, name: str) -> str:
    """Return what comparisons read: each method's values of highest validation accuracy.

    Raises:
        InputError: if the results were made with other settings.
    """
    return _tuned(tune, experiment, results, name)[1]


def report_tuning(tune: Tune, experiment: Experiment, results: dict[str, Any], *, name: str) -> Any:
    """Return the `Report` on a tuning, and log it to the tuning's run; raises the errors of `choose`."""
    from ktpfl_pipeline.pipelines.study import log_report
    from ktpfl_pipeline.reports.tuning import build

    study, chosen = _tuned(tune, experiment, results, name)
    made = build(name, study, chosen)
    log_report(name, name, study.key, made)
    return made


def plan(paper: Paper, parameters: dict[str, Any], raw_folder: Path, paper_runs: Path) -> Any:
    """Return the cells of the paper, after printing every cell, what is done, and the hours left.

    Raises:
        InputError: if a setting of a column cannot be.
    """
    from ktpfl_pipeline.pipelines import paper as papers
    from ktpfl_pipeline.pipelines import study
    from ktpfl_pipeline.reports.reproduction import told

    planned = study.plan(PAPER, parsing.paper_cells(paper, parameters), raw_folder)
    print(told(papers.cells(planned, paper_runs)))  # noqa: T201
    return planned


def train(paper: Paper, planned: Any, paper_runs: Path) -> dict[str, str]:
    """Run what is left, unless `paper.train` is false; a run that fails is logged, and the others continue."""
    from ktpfl_pipeline.pipelines.paper import run_left

    return run_left(planned, paper_runs) if paper.train else {}


def collect(paper: Paper, planned: Any, paper_runs: Path, failures: dict[str, str]) -> Any:
    """Return the `Evidence`: all cells with the runs that are finished."""
    from ktpfl_pipeline.analysis.evidence import Evidence
    from ktpfl_pipeline.pipelines.paper import cells

    parts = {name: (part.title, part.shows) for name, part in paper.chosen().items()}
    return Evidence(paper.scale, parts, cells(planned, paper_runs, failures))


def report_paper(evidence: Any) -> Any:
    """Return the `Report` on all that is finished, next to the paper's numbers."""
    from ktpfl_pipeline.analysis.provenance import here_and_now
    from ktpfl_pipeline.reports.reproduction import build

    return build(evidence.scale, evidence.parts, evidence.cells, here_and_now())


def overview(comparisons: dict[str, Any]) -> Any:
    """Return the `Report` on all finished comparisons; where there is none, it is said how to make one."""
    from ktpfl_pipeline.reports.overview import build

    return build(comparisons)


def sweep_pipeline(name: str) -> Pipeline:
    """Return the pipeline of the sweep `name`: the runs of every value, then one report."""
    settings, cells = [f"params:{name}", "parameters"], f"{name}/cells"
    return Pipeline(
        [
            step(run_sweep, [*settings, "raw_folder"], cells, namespace="sweep", name=name),
            step(report_sweep, [*settings, cells], f"{name}/report", namespace="report", name=name),
        ]
    )


def tuning_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that tunes the methods that one experiment's comparison runs."""
    settings, cells = [f"params:{name}", f"params:{experiment}"], f"{name}/cells"
    made = [*settings, cells]
    return Pipeline(
        [
            step(run_tuning, [*settings, "raw_folder"], cells, namespace="tune", name=name, methods=methods),
            step(choose, made, f"{experiment}/hyperparameters", namespace="report", name=name),
            step(report_tuning, made, f"{name}/report", namespace="report", name=name),
        ]
    )


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


def overview_pipeline() -> Pipeline:
    """Return the pipeline ``overview``; it trains nothing."""
    return Pipeline([step(overview, "comparisons", "overview/report")])
