"""Raw folder → images of the experiment's size → the public set → the partition → the data of the federation."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.data.nodes import (
    draw_partition,
    join,
    load_private,
    load_public,
    partition_clients,
    sample_public_set,
)


def create_pipeline() -> Pipeline:
    """Return the block."""
    settings = "params:experiment"
    return Pipeline(
        [
            node(load_private, [settings, "raw_folder"], "private", name="load_private"),
            node(load_public, [settings, "raw_folder", "private"], "public_images", name="load_public"),
            node(sample_public_set, [settings, "private", "public_images"], "public_set", name="sample_public_set"),
            node(partition_clients, [settings, "private", "public_set"], "partition", name="partition_clients"),
            node(join, ["private", "public_set", "partition"], "federation", name="join"),
            node(draw_partition, "federation", "labels_per_client", name="draw_partition"),
        ]
    )
