"""Private samples and public set → the partition (a table of indices), the data of the federation, and its figure."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.partition.nodes import draw_partition, join, partition_clients
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the block."""
    made_of = ["params:experiment", "private", "public_set"]
    return Pipeline(
        [
            step(partition_clients, made_of, "partition"),
            step(join, [*made_of, "partition", "raw_folder"], "federation"),
            step(draw_partition, "federation", "labels_per_client"),
        ]
    )
