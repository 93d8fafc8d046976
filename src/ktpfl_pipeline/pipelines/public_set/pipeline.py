"""Private and public samples → the public set, with nothing private in it."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline([step(sample_public_set, ["params:experiment", "private", "public_images"], "public_set")])
