"""Nodes that report."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def report(name: str, experiment: Experiment, *results: Any) -> Any:
    """Return the `Report` on the `MethodResult` of each method, and log it beside their runs.

    A report on the same runs goes to the same run of the tracker: making it again replaces it.

    Raises:
        InputError: if a result was made with other settings.
    """
    from ktpfl_pipeline import tracking
    from ktpfl_pipeline.analysis.provenance import here_and_now
    from ktpfl_pipeline.analysis.results import comparable
    from ktpfl_pipeline.reports.comparison import build, identity

    methods = comparable(results, experiment.settings())
    made = build(name, methods, experiment.settings(), here_and_now())
    title = f"report · {name} · {made.variant}"
    tracking.current().log_report(methods[0].runs[0].experiment, title, identity(methods), made.files, made.figures)
    return made
