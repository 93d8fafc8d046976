"""What the command line says before and after the training."""

import logging

import click
import pytest
from click.globals import pop_context
from click.testing import CliRunner
from registered import pipelines

from ktpfl_pipeline.pipelines.federated_training import progress
from ktpfl_pipeline.terminal import TerminalHooks


@click.command()
@click.option("--stop", is_flag=True)
def run(stop: bool) -> None:
    TerminalHooks().after_context_created()
    if stop:
        raise KeyboardInterrupt


def test_ctrl_c_is_one_sentence() -> None:
    result = CliRunner().invoke(run, ["--stop"])
    assert result.exit_code == 130
    assert result.stderr.endswith("\nStopped. The same command goes on.\n")
    assert "Aborted" not in result.stderr
    pop_context()  # a context that is left by an error stays; a process ends with it


def test_something_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ktpfl_pipeline")
    assert CliRunner().invoke(run).exit_code == 0
    assert caplog.messages == ["Loading …"]


def test_outside_of_a_command_ctrl_c_is_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """In a notebook, for example."""
    caplog.set_level(logging.INFO, "ktpfl_pipeline")
    TerminalHooks().after_context_created()
    assert caplog.messages == []


def test_methods_are_counted() -> None:
    pipeline = pipelines()["compare_hetero_digits"]
    methods = len({name for name in pipeline.outputs() | pipeline.all_outputs() if name.endswith("/result")})
    TerminalHooks().before_pipeline_run(pipeline)
    plan = progress._plan.get()
    assert plan is not None
    assert plan.trainings == methods > 10
