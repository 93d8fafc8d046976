"""Nodes that report."""

import logging
from dataclasses import asdict, replace
from typing import Any

from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.pipelines.federated_training.nodes import resolve

logger = logging.getLogger(__name__)


def report(experiment: Experiment, hyperparameters: str, *results: Any, section: str, name: str) -> Any:
    """Return the `Report` on the `MethodResult` of each method, and log it next to their runs.

    A report on the same runs goes to the same run of the tracker: making it again replaces it.

    Args:
        experiment: its settings.
        hyperparameters: what a tuning of it left, as for `resolve`.
        results: of its methods.
        section: the experiment's name.
        name: of the report.

    Raises:
        InputError: if a result was made with other settings or hyperparameters.
    """
    from ktpfl_pipeline.analysis.agreement import check_settings, comparable
    from ktpfl_pipeline.analysis.contrasts import paired_difference
    from ktpfl_pipeline.analysis.provenance import here_and_now
    from ktpfl_pipeline.analysis.roles import headline, local_only
    from ktpfl_pipeline.methods import slug
    from ktpfl_pipeline.pipelines.study import log_report
    from ktpfl_pipeline.reports.comparison import build, identity

    logger.info("Writing the report …")
    methods = comparable(results, experiment.settings())
    resolved = resolve(experiment, hyperparameters, name=section, methods=[each.method for each in methods])
    for each in methods:
        then, now = each.hyperparameters, asdict(method_of(resolved, each.method))
        check_settings(
            f"The result of {each.method} was", {"methods": {each.method: then}}, {"methods": {each.method: now}}
        )
    led = {**methods[0].settings, "headline": experiment.headline, "subject": experiment.subject}
    methods = [replace(each, settings={**each.settings, **led}) for each in methods]
    made = build(name, methods, led, here_and_now())
    local = local_only(methods)
    metrics = {f"headline/{slug(each.method)}": each.final[headline(methods)].mean for each in methods}
    for each in methods:
        if local and each is not local and (gain := paired_difference(each, local, headline(methods))):
            metrics[f"gain/{slug(each.method)}"] = gain.mean
    children = [run.run_id for each in methods for run in each.runs] if len(methods) > 1 else []
    title = f"report · {name} · {made.variant}"
    log_report(methods[0].runs[0].experiment, title, identity(methods), made, metrics, children)
    return made
