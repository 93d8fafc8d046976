"""What every comparison left beside its report → one overview."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.overview.nodes import overview
from ktpfl_pipeline.pipelines.step import step


def create_pipeline() -> Pipeline:
    """Return the pipeline ``overview``; it trains nothing."""
    return Pipeline([step(overview, "comparisons", "overview/report")])
