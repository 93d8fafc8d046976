"""Nodes that report."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def report(experiment: Experiment, *results: Any, name: str) -> Any:
    """Return the `Report` on the `MethodResult` of each method, and log it beside their runs.

    A report on the same runs goes to the same run of the tracker: making it again replaces it.

    Raises:
        InputError: if a result was made with other settings.
    """
    from ktpfl_pipeline.analysis.agreement import comparable
    from ktpfl_pipeline.analysis.contrasts import paired_difference
    from ktpfl_pipeline.analysis.provenance import here_and_now
    from ktpfl_pipeline.analysis.results import HEADLINE, local_only
    from ktpfl_pipeline.methods import slug
    from ktpfl_pipeline.pipelines.parent import log_report
    from ktpfl_pipeline.reports.comparison import build, identity

    methods = comparable(results, experiment.settings())
    made = build(name, methods, methods[0].settings, here_and_now())
    local = local_only(methods)
    metrics = {f"headline/{slug(each.method)}": each.final[HEADLINE].mean for each in methods}
    for each in methods:
        if local and each is not local and (gain := paired_difference(each, local)):
            metrics[f"gain/{slug(each.method)}"] = gain.mean
    children = [run.run_id for each in methods for run in each.runs] if len(methods) > 1 else []
    title = f"report · {name} · {made.variant}"
    log_report(methods[0].runs[0].experiment, title, identity(methods), made, metrics, children)
    return made
