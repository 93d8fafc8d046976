"""What every comparison left beside its report → one overview."""

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.overview.nodes import overview


def create_pipeline() -> Pipeline:
    """Return the pipeline ``overview``; it trains nothing."""
    return Pipeline([node(overview, "comparisons", "overview/report", name="overview")])
