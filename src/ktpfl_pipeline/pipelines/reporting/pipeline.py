"""The results of all methods → one report."""

from collections.abc import Sequence

from kedro.pipeline import Pipeline

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.reporting.nodes import report
from ktpfl_pipeline.pipelines.step import step


def create_pipeline(name: str, methods: Sequence[str]) -> Pipeline:
    """Return the block for the pipeline `name`."""
    results = [f"{slug(method)}_result" for method in methods]
    return Pipeline([step(report, ["params:experiment", *results], "report", name=name)])
