"""Nodes of the paper's tables and figures.

Arguments that they share: `paper`, the section; `planned`, what there is to run; `failures`, why runs failed, by key.
"""

from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.config.studies import PAPER, Paper
from ktpfl_pipeline.pipelines.step import step


def plan(paper: Paper, parameters: dict[str, Any], raw_folder: Path, paper_runs: Path) -> Any:
    """Return what there is to run, as `Planned`, after printing it: every cell, what is done, and the hours left.

    Raises:
        InputError: if a setting of a column cannot be.
    """
    from ktpfl_pipeline.pipelines.paper.planning import cells, planned
    from ktpfl_pipeline.reports.reproduction import told

    made = planned(paper, parameters, raw_folder, paper_runs)
    print(told(cells(made, {})))  # noqa: T201
    return made


def train(paper: Paper, planned: Any) -> dict[str, str]:
    """Run what is left, unless `paper.train` is false; a run that fails is logged, and the others continue."""
    from ktpfl_pipeline.pipelines.paper.running import run_left

    return run_left(planned) if paper.train else {}


def collect(paper: Paper, planned: Any, failures: dict[str, str]) -> Any:
    """Return the `Evidence`: all cells with the runs that are finished."""
    from ktpfl_pipeline.analysis.evidence import Evidence
    from ktpfl_pipeline.pipelines.paper.planning import cells

    parts = {name: (part.title, part.shows) for name, part in paper.chosen().items()}
    return Evidence(paper.scale, parts, cells(planned, failures))


def report(evidence: Any) -> Any:
    """Return the `Report` on all that is finished, next to the paper's numbers."""
    from ktpfl_pipeline.analysis.provenance import here_and_now
    from ktpfl_pipeline.reports.reproduction import build

    return build(evidence.scale, evidence.parts, evidence.cells, here_and_now())


def create_pipeline() -> Pipeline:
    """Return the pipeline ``paper``: a plan, the runs that are left, one report."""
    settings, planned, failures = f"params:{PAPER}", f"{PAPER}_plan", f"{PAPER}_failures"
    evidence = f"{PAPER}_evidence"
    return Pipeline(
        [
            step(plan, [settings, "parameters", "raw_folder", "paper_runs"], planned, namespace="plan"),
            step(train, [settings, planned], failures, namespace="train"),
            step(collect, [settings, planned, failures], evidence, namespace="report"),
            step(report, [evidence], f"{PAPER}/report", namespace="report"),
        ]
    )
