"""The command `run` of `kedro` and `ktpfl`: Kedro's own command, with error messages of one sentence.

Kedro reads a project's commands from this module. The module handles errors that occur before the hooks are called, and
sets up the terminal for the printed results.
"""

import io
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import click
from kedro.framework.cli.jupyter import jupyter as kedro_jupyter
from kedro.framework.cli.project import run as kedro_run
from kedro.io import DatasetError
from yaml import YAMLError

from ktpfl_pipeline import hooks
from ktpfl_pipeline.core.errors import InputError, check_installed, printable


class RunCommand(click.Command):
    """Kedro's command `run`, with clearer errors for unreadable options and catalogs."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """Parse the command line. Raises UsageError for values of ``--params`` that YAML cannot read or changes."""
        given = [each.removeprefix("--params=") for each in args]
        options = list(pairwise([*(part for each in args for part in each.split("=", 1)), ""]))  # click empties args
        settings = printable(next((value for value in given if "=" in value and not value.startswith("--")), ""))
        try:
            context = super().make_context(info_name, args, parent, **extra)
            hooks.check_numbers(settings, [Path(value) for option, value in options if option in ("--config", "-c")])
            return context
        except InputError as error:
            raise click.UsageError(str(error)) from error
        except YAMLError as error:
            problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
            raise click.UsageError(
                f"--params {settings} cannot be read ({printable(problem)}): a value is YAML, so put quotes around one "
                "that begins with { [ * & ! @ or %, as in --params \"digits.private.source='*.npz'\", and leave out "
                "characters that do not print."
            ) from error
        except click.UsageError as error:
            pairs = re.findall(r"([^=,]+)=([^=]*)(?:,|$)", settings)
            name, value = next((pair for pair in pairs if "," in pair[1]), ("", ""))
            if "`params`" not in error.message or not name:
                raise
            joined = re.sub(r"[\[\]() ]", "", value).replace(",", "+")
            way = (
                f"a mapping key by key, as in {name}.a=1,{name}.b=2"
                if "{" in value
                else f"a list with +: {name}={joined}"
            )
            raise click.UsageError(
                f"--params {settings} cannot be read: a comma begins the next setting. Write {way}; or write the value "
                "into conf/local/parameters.yml."
            ) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Raises ClickException if a warning was raised as an error, or the catalog cannot be read.

        Raises UsageError if several pipelines are given that cannot be one run.
        """
        show_any_character()
        os.environ["MPLBACKEND"] = "agg"  # runs open no window; matplotlib cannot be imported with an invalid backend
        before = hooks.started()
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if hooks.started() > before or "must have unique names" not in str(error):
                raise
            raise click.UsageError(
                f"--pipelines has {', '.join(ctx.params['pipelines'])}, which have steps of the same names: give one "
                "command for each."
            ) from error
        except Warning as error:
            raise click.ClickException(
                f"Python was asked to take warnings for errors (-W error or PYTHONWARNINGS), and a package warned: "
                f"{printable(str(error).strip().partition(chr(10))[0])} ({type(error).__name__}). Leave that out, or "
                "take only warnings of ktpfl_pipeline for errors."
            ) from error
        except DatasetError as error:
            if hooks.started() > before:
                raise  # the error comes from a node, and its traceback is more informative
            reason = str(error).strip().partition("\n")[0]
            raise click.ClickException(
                f"The catalog cannot be read ({printable(reason)}): correct the entry in conf/*/catalog*.yml; its type "
                "must be the dotted path of a dataset."
            ) from error


class JupyterGroup(click.Group):
    """Kedro's commands `jupyter`. If the package that a command needs is not installed, the error names the package."""

    needs: ClassVar[dict[str, str]] = {"lab": "jupyterlab", "notebook": "notebook", "setup": "ipykernel"}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the requested command. Raises ClickException if the package that it needs is not installed."""
        name, command, rest = super().resolve_command(ctx, args)
        package = self.needs.get(name or "")
        if package:
            try:
                check_installed(f"kedro jupyter {name}", package)
            except InputError as error:
                raise click.ClickException(str(error)) from None
        return name, command, rest


def show_any_character() -> None:
    """Make output streams replace characters that their encoding lacks, so that printing them does not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@click.group(name="ktpfl_pipeline")
def cli() -> None:
    """The project's commands."""


run = RunCommand(
    name="run",
    callback=kedro_run.callback,
    params=kedro_run.params,
    help=kedro_run.help,
    short_help=kedro_run.short_help,
)
cli.add_command(run)
cli.add_command(JupyterGroup("jupyter", kedro_jupyter.commands, help=kedro_jupyter.help))
