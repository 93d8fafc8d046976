"""The results of all methods → one report."""

from collections.abc import Sequence
from functools import partial, update_wrapper

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.reporting.nodes import report


def create_pipeline(name: str, methods: Sequence[str]) -> Pipeline:
    """Return the block for the pipeline `name`."""
    make = update_wrapper(partial(report, name), report)
    inputs = ["params:experiment", *(f"{slug(method)}_result" for method in methods)]
    return Pipeline([node(make, inputs, "report", name="report")])
