"""Federation and settings → the finished runs of one method."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines.federated_training.nodes import settle, train
from ktpfl_pipeline.pipelines.step import step


def create_pipeline(experiment: str, method: str) -> Pipeline:
    """Return the block for one method of one experiment."""
    own = slug(method)
    return Pipeline(
        [
            step(settle, ["resolved", "federation"], "settled", of=own, name=experiment),
            step(train, ["settled", "federation"], "runs", of=own, name=experiment, method=method),
        ]
    )
