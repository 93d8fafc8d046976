"""Federation and settings → the finished runs of one method."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.federated_training.nodes import train
from ktpfl_pipeline.pipelines.step import step


def create_pipeline(experiment: str, method: str) -> Pipeline:
    """Return the block for one method of one experiment."""
    inputs = ["resolved", "federation"]
    return Pipeline([step(train, inputs, "runs", of=slug(method), name=experiment, method=method)])
