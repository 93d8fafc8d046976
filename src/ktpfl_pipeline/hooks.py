"""Kedro hooks: they check parameters before a run, configure tracking, and show errors as one sentence."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
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
"""The ids of this process's runs whose pipelines were started."""
STOPPED, TERMINATED = 128 + 2, 128 + 15
"""The exit codes after Ctrl-C and after SIGTERM: 128 plus the number of the signal, as in shells."""


class ProjectHooks:
    """All hooks of the project."""

    @hook_impl(tryfirst=True)  # before other plugins' hooks, which may request the pipelines
    def after_context_created(self, context: KedroContext) -> None:
        """Check every parameter, store the parameters for the pipeline registry and for Kedro, and configure tracking.

        On the command line, this hook first logs that a run starts. From then on, Ctrl-C ends the command with one
        sentence instead of a traceback. Raises ClickException if the configuration cannot be read, or a setting is
        invalid.
        """
        if command := click.get_current_context(silent=True):
            logger.info("Loading …")  # the imports below load torch, which takes seconds
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
            for name in ("catalog", "credentials"):  # Kedro reads them later and would show a traceback
                with contextlib.suppress(MissingConfigException):
                    context.config_loader[name] = reading.read(context.config_loader, name)
            reading.remember(parameters, context.config_loader)
            context.config_loader["parameters"] = parameters  # nodes receive sections with their inherited settings
            configure_tracking(context.config_loader, Path(context.project_path))
        except (InputError, MissingConfigException) as error:
            raise ClickException(str(error)) from error

    @hook_impl
    def before_pipeline_run(self, run_params: dict[str, Any], pipeline: Any) -> None:
        """Check the runner and the settings that this run uses, and sort the nodes into the order of the methods.

        Only the sequential runner is allowed: other runners start nodes in threads or processes in which tracking and
        checkpoints do not work. Raises ClickException if the runner is not sequential, if settings exclude each other,
        or if a model of another library does not exist.
        """
        from ktpfl_pipeline.config import checks, parsing, reading
        from ktpfl_pipeline.config.studies import COMPARE
        from ktpfl_pipeline.core.warnings import start_command

        start_command()
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
        pipeline.filter = lambda **asked: _in_turn(whole(**asked))  # the runner calls it for --only-missing-outputs
        _in_turn(pipeline)

    @hook_impl
    def on_pipeline_error(self, error: Exception) -> None:
        """Convert an error that the user can fix to a ClickException. Other errors keep their traceback."""
        if isinstance(error, DatasetError) and "has not been saved yet" in str(error):
            made = str(error).partition(":")[0]
            raise ClickException(
                f"The run begins after the step that makes {made}, which is kept in memory alone: begin with a whole "
                "box, such as --namespaces=methods.report, or leave --from-nodes, --from-inputs and --nodes out."
            ) from error
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, InputError | OSError) and not used_up(cause):
            cause = cause.__cause__  # Kedro wraps the error of a dataset
        if cause is not None and used_up(cause):  # in code without a message for this error, such as drawing
            reason = str(cause).strip().partition("\n")[0][:200] or "MemoryError"
            cause = InputError(
                f"The run used up the memory of this machine ({reason}). Stop other programs, or set a smaller "
                "image.size, fewer private.samples or compute.executor=serial. Then give the same command again: what "
                "was finished is kept."
            )
        if isinstance(cause, OSError) and cause.errno is not None:  # otherwise the message names the cause
            cause = InputError(
                f"{cause.filename or 'A file'} could not be read or written ({cause.strerror}): see that it is there, "
                "that it may be read and written, and that the disk has room, and give the same command again."
            )
        if isinstance(cause, InputError):
            raise ClickException(str(cause)) from error

    @hook_impl
    def after_pipeline_run(self, run_params: dict[str, Any], pipeline: Any, catalog: Any) -> None:
        """Print the comparison table, the path of the report, and the commands for MLflow and kedro-viz.

        Raises ClickException if a part of the study could not be run. The report is written in this case too.
        """
        for name in sorted(pipeline.outputs()):
            if name.endswith("/report"):
                dataset = catalog.get(name)
                before = "" if dataset.made else "Nothing was missing: this is the newest report of those before.\n"
                page = os.path.relpath(dataset.page)
                steps = _next_steps(name.removesuffix("/report"), run_params)
                show(f"\n{before}{dataset.console()}\nReport: {page}\n{steps}")
                if dataset.failed:
                    raise ClickException(dataset.failed)


def started() -> int:
    return len(_runs)


def show(text: str) -> None:
    """Print a text to standard output. If standard output cannot be written, print a note to standard error instead."""
    try:
        print(text, flush=True)  # noqa: T201
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # otherwise Python would try again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = error.strerror or str(error)
        with contextlib.suppress(OSError):  # standard error may be closed too
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
    """Sort the pipeline's nodes in place, store the number of training nodes for progress messages, and return it."""
    from ktpfl_pipeline.pipelines import graphs
    from ktpfl_pipeline.runs import comparison, progress

    pipeline.nodes.sort(key=graphs.turn)  # Kedro sorts nodes by name; the pipeline keeps this list
    functions = [node.func for node in pipeline.nodes]
    progress.expect(sum((f.__module__, f.__name__) == (comparison.__name__, "train") for f in functions))
    return pipeline


def check_folder(project: Path) -> None:
    """Raise InputError if the project's path is not UTF-8 or has characters that Kedro and MLflow would misread."""
    path = str(project)
    if any(0xDC80 <= ord(sign) <= 0xDCFF for sign in path) or any(sign in path for sign in "?*[]#"):
        raise InputError(
            f"The project's folder is {path!r}; its path must be UTF-8 without ?, *, [, ] and #, which Kedro reads as "
            "patterns and MLflow as parts of an address. Rename the folder, or move the project."
        )


def check_numbers(settings: str, files: Iterable[Path]) -> None:
    """Raise InputError for a number that YAML changes, in ``--params`` (`settings`) or ``--config`` (`files`)."""
    from ktpfl_pipeline.config.values import check_numbers

    for pair in settings.split(","):
        check_numbers(Path(f"--params {pair}"), pair.partition("=")[2].encode())
    for file in files:
        check_numbers(file, file.read_bytes())


def check_environment(env: str | None) -> None:
    """Raise InputError if `env` is ``base`` or ``local``, because runs without ``--env`` read both."""
    if env in ("base", "local"):
        what = "does not read conf/local" if env == "base" else "is the same as leaving --env out"
        raise InputError(
            f"--env is {env!r}, which runs without --env read already; --env={env} {what}. Leave --env out, or choose "
            "--env=quick for a run of minutes."
        )


def configure_tracking(loader: Any, project: Path) -> None:
    """Configure the tracker from the files tracking*.yml, which Kedro's `loader` reads."""
    from ktpfl_pipeline import tracking
    from ktpfl_pipeline.config import reading

    tracking.configure(reading.read(loader, "tracking"), project)


def _next_steps(pipeline: str, run_params: dict[str, Any]) -> str:
    """Return lines with the commands that open MLflow and, in a clone of the repository, the pipeline in kedro-viz."""
    from ktpfl_pipeline import tracking

    clone = Path("src/ktpfl_pipeline").is_dir() and Path("Makefile").exists()
    runs = f"All runs in MLflow: {'make ui' if clone else 'python -m ktpfl_pipeline.ui'}\n"
    seen = runs if isinstance(tracking.current(), tracking.MlflowTracker) else ""
    env = f" ENV={given}" if (given := run_params.get("env")) else ""
    return seen + (f"The pipeline in kedro-viz: make viz PIPELINE={pipeline}{env}\n" if clone else "")
