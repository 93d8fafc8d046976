"""Private and public samples → the public set, with nothing private in it."""

from collections.abc import Sequence

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.public_set.nodes import read_public, sample_public_set
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the block."""
    return Pipeline([step(sample_public_set, ["params:experiment", "private", "public_images"], "public_set")])


def of_real_clients(methods: Sequence[str]) -> Pipeline:
    """Return the block for real clients, who alone have private samples."""
    return Pipeline([step(read_public, ["params:experiment", "raw_folder"], "federation", methods=tuple(methods))])
