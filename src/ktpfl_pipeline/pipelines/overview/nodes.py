"""Nodes that look over finished comparisons."""

from typing import Any


def overview(comparisons: dict[str, Any]) -> Any:
    """Return the `Report` on all finished comparisons; where there is none, it is said how to make one."""
    from ktpfl_pipeline.reports.overview import build

    return build(comparisons)
