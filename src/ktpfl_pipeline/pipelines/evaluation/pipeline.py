"""Finished runs → the method's result: final accuracies with their spreads, bytes, seconds."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.evaluation.nodes import evaluate
from ktpfl_pipeline.pipelines.step import step


def create_pipeline(method: str) -> Pipeline:
    """Return the block for one method."""
    return Pipeline([step(evaluate, ["settled", "runs"], "result", of=slug(method))])
