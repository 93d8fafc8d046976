"""The sweep's settings and all experiments → the runs of every point → one report.

Which experiment is swept is a setting and may be another for one run, so the nodes take all parameters.
"""

from functools import partial, update_wrapper

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.sweep.nodes import report, run_points


def create_pipeline(name: str) -> Pipeline:
    """Return the pipeline of the sweep `name`."""
    run = update_wrapper(partial(run_points, name=name), run_points)
    tell = update_wrapper(partial(report, name=name), report)
    settings = [f"params:{name}", "parameters"]
    return Pipeline(
        [
            node(run, [*settings, "raw_folder"], f"{name}/points", name="run_points", namespace="sweep"),
            node(tell, [*settings, f"{name}/points"], f"{name}/report", name="report", namespace="report"),
        ]
    )
