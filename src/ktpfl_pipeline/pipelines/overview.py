"""What every comparison left next to its report → all finished comparisons on one page."""

from typing import Any

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines.step import step


def overview(comparisons: dict[str, Any]) -> Any:
    """Return the `Report` on all finished comparisons; where there is none, it is said how to make one."""
    from ktpfl_pipeline.reports.overview import build

    return build(comparisons)


def create_pipeline() -> Pipeline:
    """Return the pipeline ``overview``; it trains nothing."""
    return Pipeline([step(overview, "comparisons", "overview/report")])
