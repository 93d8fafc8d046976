"""The sweep's settings and all experiments → the runs of every point → one report.

Which experiment is swept is a setting and may be another for one run, so the nodes take all parameters.
"""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.step import step
from ktpfl_pipeline.pipelines.sweep.nodes import report, run_points


def create_pipeline(name: str) -> Pipeline:
    """Return the pipeline of the sweep `name`."""
    settings, points = [f"params:{name}", "parameters"], f"{name}/points"
    return Pipeline(
        [
            step(run_points, [*settings, "raw_folder"], points, namespace="sweep", name=name),
            step(report, [*settings, points], f"{name}/report", namespace="report", name=name),
        ]
    )
