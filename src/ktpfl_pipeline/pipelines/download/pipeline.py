"""Raw folder → private samples and public inputs; images of the experiment's size."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the block."""
    inputs = ["params:experiment", "raw_folder"]
    return Pipeline([step(load_private, inputs, "private"), step(load_public, [*inputs, "private"], "public_images")])
