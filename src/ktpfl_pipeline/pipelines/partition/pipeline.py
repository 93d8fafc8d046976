"""Private images and public set → the partition (a table of indices), its figure, and the data of the federation."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.partition.nodes import draw_partition, join, partition_clients


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline(
        [
            node(
                partition_clients, ["params:experiment", "private", "public_set"], "partition", name="partition_clients"
            ),
            node(draw_partition, "partition", "labels_per_client", name="draw_partition"),
            node(join, ["private", "public_set", "partition"], "federation", name="join"),
        ]
    )
