"""Private and public images → the public set, with nothing private in it."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set


def create_pipeline() -> Pipeline:
    """Return the block."""
    inputs = ["params:experiment", "private", "public_images"]
    return Pipeline([node(sample_public_set, inputs, "public_set", name="sample_public_set")])
