"""Finished runs → the method's result: final accuracies with their spreads, bytes, seconds."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.evaluation.nodes import evaluate


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline([node(evaluate, ["resolved", "runs"], "result", name="evaluate")])
