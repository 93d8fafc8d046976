"""Raw folder → private images and public images, as uint8 tensors of the experiment's size."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline(
        [
            node(load_private, ["params:experiment", "raw_folder"], "private", name="load_private"),
            node(load_public, ["params:experiment", "raw_folder", "private"], "public_images", name="load_public"),
        ]
    )
