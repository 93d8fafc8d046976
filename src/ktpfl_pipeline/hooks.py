"""Where Kedro meets the rest: parameters checked before anything runs, tracking set up, errors as one sentence."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click import ClickException
from kedro.config import MissingConfigException
from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import DatasetError

from ktpfl_pipeline.core.errors import InputError, used_up
from ktpfl_pipeline.core.machine.stopping import TerminatedError, heed

logger = logging.getLogger(__name__)
_runs: list[str] = []
"""The sessions of this process that have come as far as their pipelines."""
STOPPED, TERMINATED = 128 + 2, 128 + 15
"""The exit codes after Ctrl-C and after SIGTERM, as shells have them."""


class ProjectHooks:
    """The project's one set of hooks."""

    @hook_impl(tryfirst=True)  # before anybody's hook that asks for the pipelines
    def after_context_created(self, context: KedroContext) -> None:
        """Check each parameter by itself, keep all for the registry and for Kedro, and say where runs are tracked.

        On the command line, say first that a run starts; from here on, Ctrl-C ends it in one sentence. A ClickException
        says that the configuration cannot be read, or that a setting cannot be.
        """
        if command := click.get_current_context(silent=True):
            logger.info("Loading …")  # what comes next imports torch
            command.with_resource(_stopping())
        from ktpfl_pipeline.config import checks, parsing, reading

        source, env = Path(context.config_loader.conf_source), context.config_loader.env
        try:
            check_folder(Path(context.project_path))
            check_environment(env)
            if env and source.is_dir():
                checks.check_known("--env", env, [place.name for place in sorted(source.iterdir()) if place.is_dir()])
            parameters = reading.sections(context.config_loader)
            parsing.check(parameters)
            for name in ("catalog", "credentials"):  # Kedro reads them later, where an error is a traceback
                with contextlib.suppress(MissingConfigException):
                    context.config_loader[name] = reading.read(context.config_loader, name)
            reading.remember(parameters, reading.hidden(context.config_loader))
            context.config_loader["parameters"] = parameters  # what nodes are given: with what sections inherit
            configure_tracking(context.config_loader, Path(context.project_path))
        except (InputError, MissingConfigException) as error:
            raise ClickException(str(error)) from error

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Any) -> None:
        """Put the nodes in their turns, and check for the sequential runner and that what this run uses goes together.

        Other runners would start nodes where tracking and checkpoints do not reach.
        """
        from ktpfl_pipeline.config import checks, parsing, reading
        from ktpfl_pipeline.config.studies import COMPARE

        _runs.append(str(run_params.get("run_id")))
        runner = str(run_params.get("runner"))
        if "ThreadRunner" in runner or "ParallelRunner" in runner:
            raise ClickException(f"The runner is {runner}; use Kedro's default, SequentialRunner (leave --runner out).")
        named = {dataset.removeprefix("params:") for dataset in pipeline.inputs() if dataset.startswith("params:")}
        try:
            for name, experiment in parsing.used(named, reading.recall()) if named else ():
                checks.check_families(name, experiment)
                if f"{COMPARE}{name}/report" in pipeline.outputs():
                    checks.warn_of_unlisted(name, experiment)
        except InputError as error:
            raise ClickException(str(error)) from error
        whole = pipeline.filter
        pipeline.filter = lambda **asked: _in_turn(whole(**asked))  # the runner's, for --only-missing-outputs
        _in_turn(pipeline)

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        """Show what the user can fix as one sentence; anything else keeps its traceback."""
        if isinstance(error, DatasetError) and "has not been saved yet" in str(error):
            made = str(error).partition(":")[0]
            raise ClickException(
                f"The run begins after the step that makes {made}, which is kept in memory alone: begin with a whole "
                "box, such as --namespaces=methods.report, or leave --from-nodes, --from-inputs and --nodes out."
            ) from error
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, InputError | OSError) and not used_up(cause):
            cause = cause.__cause__  # Kedro raises an error of its own from that of a dataset
        if cause is not None and used_up(cause):  # in what has no sentence of its own, such as drawing figures
            reason = str(cause).strip().partition("\n")[0][:200] or "MemoryError"
            cause = InputError(
                f"The run used up the memory of this machine ({reason}). Stop other programs, or set a smaller "
                "image.size, fewer private.samples or compute.executor=serial. Then give the same command again: what "
                "was finished is kept."
            )
        if isinstance(cause, OSError) and cause.errno is not None:  # no other message names the cause
            cause = InputError(
                f"{cause.filename or 'A file'} could not be read or written ({cause.strerror}): see that it is there, "
                "that it may be read and written, and that the disk has room, and give the same command again."
            )
        if isinstance(cause, InputError):
            raise ClickException(str(cause)) from error

    @hook_impl
    def after_pipeline_run(self, pipeline: Any, catalog: Any) -> None:
        """End with the comparison table, the place of the report, and what one may do next.

        If something could not be run, say so last, in an error: the command fails, although its report is written.
        """
        for name in sorted(pipeline.outputs()):
            if name.endswith("/report"):
                dataset = catalog.get(name)
                before = "" if dataset.made else "Nothing was missing: this is the newest report of those before.\n"
                page = os.path.relpath(dataset.page)
                show(f"\n{before}{dataset.console()}\nReport: {page}\n{_next_steps()}")
                if dataset.failed:
                    raise ClickException(dataset.failed)


def started() -> int:
    """Return how many runs of pipelines were started in this process."""
    return len(_runs)


def show(text: str) -> None:
    """Print a text to standard output; a run whose results are complete does not fail where that cannot be written."""
    try:
        print(text, flush=True)  # noqa: T201
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # or Python would try again at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = error.strerror or str(error)
        with contextlib.suppress(OSError):  # whoever reads one of the two may be gone with both
            click.echo(f"The results are complete, but standard output could not be written ({reason}).", err=True)


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    heed()
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo("\nStopped. The same command goes on.", err=True)
        sys.exit(TERMINATED if isinstance(error, TerminatedError) else STOPPED)


def _in_turn(pipeline: Any) -> Any:
    """Return a pipeline with its nodes in their turns, having counted what is to be trained, for overall progress."""
    from ktpfl_pipeline.pipelines import experiment
    from ktpfl_pipeline.pipelines.federated_training import progress

    pipeline.nodes.sort(key=experiment.turn)  # in place: a pipeline keeps this list; Kedro's own order is that of names
    functions = [node.func for node in pipeline.nodes]
    progress.expect(sum((f.__module__, f.__name__) == (experiment.__name__, "train") for f in functions))
    return pipeline


def check_folder(project: Path) -> None:
    """Check that the project's path can be used in addresses and in the patterns by which Kedro finds its files."""
    path = str(project)
    if any(0xDC80 <= ord(sign) <= 0xDCFF for sign in path) or any(sign in path for sign in "?*[]#"):
        raise InputError(
            f"The project's folder is {path!r}; its path must be UTF-8 without ?, *, [, ] and #, which Kedro reads as "
            "patterns and MLflow as parts of an address. Rename the folder, or move the project."
        )


def check_environment(env: str | None) -> None:
    """Check that an environment is not ``base`` or ``local``: every run reads both, and naming one hides the other."""
    if env in ("base", "local"):
        raise InputError(
            f"--env is {env!r}, which runs without --env read already; with it conf/local is "
            f"{'left out' if env == 'base' else 'all that is added'} and the settings are those for long runs. Leave "
            "--env out, or choose --env=quick for a run of minutes."
        )


def configure_tracking(loader: Any, project: Path) -> None:
    """Configure the tracker from the files tracking*.yml that Kedro's `loader` finds."""
    from ktpfl_pipeline import tracking
    from ktpfl_pipeline.config import reading

    tracking.configure(reading.read(loader, "tracking"), project)


def _next_steps() -> str:
    """Return how to open MLflow and kedro-viz, in a clone of the repository and elsewhere."""
    from ktpfl_pipeline import tracking

    clone = Path("src/ktpfl_pipeline").is_dir() and Path("Makefile").exists()
    runs = f"All runs in MLflow: {'make ui' if clone else 'python -m ktpfl_pipeline.ui'}\n"
    seen = runs if isinstance(tracking.current(), tracking.MlflowTracker) else ""
    return seen + ("The pipeline in kedro-viz: make viz\n" if clone else "")
