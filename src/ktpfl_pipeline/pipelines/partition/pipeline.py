"""Private images and public set → the partition (a table of indices), the data of the federation, and its figure."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.partition.nodes import draw_partition, join, partition_clients


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline(
        [
            node(
                partition_clients, ["params:experiment", "private", "public_set"], "partition", name="partition_clients"
            ),
            node(join, ["private", "public_set", "partition"], "federation", name="join"),
            node(draw_partition, "federation", "labels_per_client", name="draw_partition"),
        ]
    )
