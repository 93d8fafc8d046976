"""What the command line says before and after the training: that a run starts, and that it was stopped."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

import click
from kedro.framework.hooks import hook_impl

logger = logging.getLogger(__name__)
STOPPED = 128 + 2
"""The exit code after Ctrl-C, as shells have it: that of the signal SIGINT."""


class TerminalHooks:
    """Where Kedro's command line meets its user."""

    @hook_impl(tryfirst=True)  # what comes next imports torch
    def after_context_created(self) -> None:
        """Say at once that a run starts; from here on, Ctrl-C ends it in one sentence."""
        command = click.get_current_context(silent=True)
        if command is not None and command.info_name != "viz":
            logger.info("Loading …")
            command.with_resource(_stopping())

    @hook_impl
    def before_pipeline_run(self, pipeline: Any) -> None:
        """Count what is to be trained, for the overall progress."""
        from ktpfl_pipeline.pipelines.federated_training import nodes, progress

        functions = [node.func for node in pipeline.nodes]
        progress.expect(sum((f.__module__, f.__name__) == (nodes.__name__, "train") for f in functions))


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\nStopped. The same command goes on.", err=True)
        sys.exit(STOPPED)
