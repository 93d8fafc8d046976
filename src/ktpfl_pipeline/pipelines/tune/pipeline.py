"""The tuning's settings and the experiment's → all trials → the chosen values, for comparisons, and a report."""

from collections.abc import Sequence

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.step import step
from ktpfl_pipeline.pipelines.tune.nodes import choose, report, run_trials


def create_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that tunes the methods that one experiment's comparison runs."""
    settings, trials = [f"params:{name}", f"params:{experiment}"], f"{name}/trials"
    made = [*settings, trials]
    return Pipeline(
        [
            step(run_trials, [*settings, "raw_folder"], trials, namespace="tune", name=name, methods=methods),
            step(choose, made, f"{experiment}/hyperparameters", namespace="report", name=name),
            step(report, made, f"{name}/report", namespace="report", name=name),
        ]
    )
