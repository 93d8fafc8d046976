"""The comparison of an experiment: each method once per seed, its result, and the report on all results."""

import logging
from dataclasses import asdict

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult, summarize
from ktpfl_pipeline.analysis.study import check_data, check_settings
from ktpfl_pipeline.config.checks import ALWAYS
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.tuned import resolve
from ktpfl_pipeline.core.errors import DivergedError, InputError
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.reports.comparison import build, identity
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs.identity import Job
from ktpfl_pipeline.runs.run import run_all
from ktpfl_pipeline.runs.study import log_report

logger = logging.getLogger(__name__)


def train(
    experiment: Experiment, federation: FederatedData, *, name: str, method: str
) -> list[FinishedRun] | InputError:
    """Run `method`, see `attempt`. Raises InputError if the data were made with other settings."""
    check_settings(f"The data of {name} were", federation.settings, experiment.of_data())
    return attempt(Job(name, method, experiment, federation))


def attempt(job: Job) -> list[FinishedRun] | InputError:
    """Run a method once for each seed, and resume unfinished runs.

    If a run diverges, the error is returned and not raised, so that all other methods are trained first.
    """
    try:
        return run_all(job)
    except DivergedError as error:
        logger.warning("%s Any further methods are still trained.", error)
        stops = job.experiment.on_divergence == "stop"
        other = f" Another remedy is {job.name}.on_divergence=skip or restore." if stops else ""
        end = "." if job.method in ALWAYS else "; one of the method's own, or leaving it out of compare, does not."
        return InputError(
            f"{title_of(job.method)} of {job.name} has no result, so there is no report. {error}{other} A "
            f"changed setting of all methods trains them all again{end}"
        )


def evaluate(experiment: Experiment, runs: list[FinishedRun] | InputError) -> MethodResult:
    """Return the summary of a method's runs with the settings of the experiment.

    Raises InputError if `attempt` returned it.
    """
    if isinstance(runs, InputError):
        raise runs
    return summarize(runs, asdict(method_of(experiment, runs[0].method)), experiment.settings())


def report(experiment: Experiment, hyperparameters: str, *results: MethodResult, section: str, name: str) -> Report:
    """Return the report on the results of all methods, and log it next to their runs.

    A report on the same runs goes to the same run of the tracker: making it again replaces it. `section` is the name of
    the experiment. An `InputError` names settings or hyperparameters that a result was not made with.
    """
    logger.info("Writing the report …")
    for each in results:
        check_settings(f"The result of {each.method} was", each.settings, experiment.settings())
    check_data(results)
    resolved = resolve(experiment, hyperparameters, name=section, methods=[each.method for each in results])
    for each in results:
        then, now = each.hyperparameters, asdict(method_of(resolved, each.method))
        check_settings(
            f"The result of {each.method} was", {"methods": {each.method: then}}, {"methods": {each.method: now}}
        )
    comparison = Comparison(results).under(**experiment.reported())
    made = build(name, comparison, here_and_now())
    lead = comparison.headline
    metrics = {f"headline/{slug(each.method)}": each.final[lead].mean for each in comparison}
    metrics |= {f"gain/{slug(method)}": gain.mean for method, gain in comparison.gains(lead).items() if gain}
    children = [run.run_id for each in results for run in each.runs] if len(results) > 1 else []
    title = f"report · {name} · {made.folder}"
    log_report(results[0].runs[0].experiment, title, identity(comparison), made, metrics, children)
    return made
