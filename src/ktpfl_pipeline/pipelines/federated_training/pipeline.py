"""Federation and settings → the finished runs of one method → its result: final accuracies, bytes, seconds."""

from functools import partial, update_wrapper

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.federated_training.nodes import evaluate, train


def create_pipeline(experiment: str, method: str) -> Pipeline:
    """Return the block for one method of one experiment."""
    run_method = update_wrapper(partial(train, name=experiment, method=method), train)
    return Pipeline(
        [
            node(run_method, ["resolved", "federation"], "runs", name="train"),
            node(evaluate, ["resolved", "runs"], "result", name="evaluate"),
        ]
    )
