"""Finished runs → the method's result: final accuracies with their spreads, bytes, seconds."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.evaluation.nodes import evaluate
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline([step(evaluate, ["resolved", "runs"], "result")])
