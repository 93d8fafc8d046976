"""The paper's parts and all experiments → a plan → the runs that are left → one report."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.config.studies import PAPER
from ktpfl_pipeline.pipelines.paper.nodes import plan, report, train
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the pipeline ``paper``."""
    settings, planned, failures = f"params:{PAPER}", f"{PAPER}_plan", f"{PAPER}_failures"
    return Pipeline(
        [
            step(plan, [settings, "parameters", "raw_folder", "paper_runs"], planned, namespace="plan"),
            step(train, [settings, planned], failures, namespace="train"),
            step(report, [settings, planned, failures], f"{PAPER}/report", namespace="report"),
        ]
    )
