"""Nodes that report."""

from typing import Any

from ktpfl_pipeline.params import Experiment


def report(name: str, experiment: Experiment, *results: dict[str, Any]) -> Any:
    """Return the `Report` on all methods; results that were made with other settings are refused."""
    from ktpfl_pipeline.reports.report import build
    from ktpfl_pipeline.reports.results import comparable

    return build(name, comparable(results, experiment.shared()), experiment.shared())
