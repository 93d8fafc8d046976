"""The command `ktpfl check`: it checks whether a method, a model or a source meets its requirements."""

import inspect
import linecache
import logging
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.check import methods as of_methods
from ktpfl_pipeline.check import models as of_models
from ktpfl_pipeline.check import sources as of_sources
from ktpfl_pipeline.check.methods import BrokenError
from ktpfl_pipeline.core.dataset import Shape, TokenShape
from ktpfl_pipeline.core.errors import InputError, plural, unknown
from ktpfl_pipeline.core.extensions import is_path, load, not_a_path, own_frames, raised
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.warnings import Found, collected
from ktpfl_pipeline.data import registry

KINDS = ("method", "model", "source")
IMAGE = "1,28,28"
TEXTS = tuple(f"{models.__name__}.{module}" for module in ("text", "transformers"))
"""Modules whose models have texts as inputs."""


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="Kind of NAME, if its parameters do not show it.")
@click.option("--shape", default=IMAGE, show_default=True, help="Input shape of a model, with commas.")
@click.option(
    "--vocabulary",
    type=click.IntRange(2),
    help="Number of token ids of a model for texts; --shape is then the length of a text.",
)
@click.option("--classes", default=10, show_default=True, type=click.IntRange(2), help="Number of classes of a model.")
@click.option(
    "--folder",
    default=registry.RAW,
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder that relative paths of a source start from.",
)
def check(name: str, kind: str | None, shape: str, vocabulary: int | None, classes: int, folder: Path) -> None:
    """Check a method, a model or a source: a registered NAME, or a dotted path such as my_package.topk:TopK.

    A method is run on toy data. A model is trained on random samples. A source is read twice. The exit code is 0 if all
    checks pass, and 1 if a check fails.
    """
    logging.getLogger("ktpfl_pipeline").addHandler(logging.NullHandler())  # `report` prints the warnings
    try:
        kind = kind or kind_of(name)
        given = _shape(kind, name, shape, vocabulary)
        with tempfile.TemporaryDirectory() as place:
            if kind == "method":
                kept = report(name, of_methods.checks(methods.create(name), Path(place)))
            elif kind == "model":
                kept = report(name, of_models.checks(name, given, classes))
            else:
                kept = report(name, of_sources.checks(name, folder))
    except InputError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(0 if kept else 1)


def kind_of(name: str) -> str:
    """Return the kind of a name or a dotted path, one of `KINDS`. Raises InputError if it cannot be determined."""
    registered = {
        "method": name in methods.METHODS,
        "model": name in models.MODELS or models.is_family(name),
        "source": name.partition(":")[0] in registry.SOURCES or (not is_path(name) and registry.PATH.fullmatch(name)),
    }
    if found := [kind for kind, holds in registered.items() if holds]:
        return found[0]
    if registry.of_file(name):
        registry.split(name)
    if not is_path(name):
        path, colon, argument = name.partition(":")
        own = methods.dotted(path)  # a source with an argument
        if meant := methods.dotted(name) or (own and own + colon + argument):
            raise not_a_path(repr(name), meant)
        raise unknown("method, model or source", name, [*methods.METHODS, *models.MODELS, *registry.SOURCES])
    if kind := _shown_by(load(name, "method, model or source")):
        return kind
    raise InputError(
        f"{name!r} is not a method's class, and its arguments do not show whether it is a model (shape, classes) "
        "or a source (argument, folder): give --kind=method, model or source."
    )


def _shown_by(found: object) -> str:
    """Return the kind of a class by its base, or of a function by its parameters; empty if it cannot be determined."""
    if inspect.isclass(found):
        return "method" if issubclass(found, Method) else ""
    taken = list(inspect.signature(found).parameters) if inspect.isfunction(found) else []
    if taken[:2] == ["shape", "classes"]:
        return "model"
    return "source" if taken[1:2] == ["folder"] else ""


def report(name: str, checks: Mapping[str, Callable[[], list[str] | None]]) -> bool:
    """Run checks in order, print the result of each, and return whether all passed.

    The other checks use the results of the first check, so they are not run if it fails.
    """
    failed, given = 0, Found()
    for place, (what, run) in enumerate(checks.items()):
        passed = False
        try:
            with collected() as warned:
                told = run() or []
            told += [f"warning: {each.text}" for each in warned if each not in given]
            given, passed = given | warned, True
        except (BrokenError, InputError) as error:
            told = str(error).splitlines()
        except Exception as error:  # whatever the user's own code raises
            frames = [
                f"{file}, line {line}, in {function}: {linecache.getline(file, line).strip()}"
                for file, line, function in own_frames(error, name)
            ]  # only frames of the user's code; if there are none, all frames
            every = [part for line in traceback.format_exception(error) for part in line.rstrip().splitlines()]
            told = [f"it raised {raised(error, name)}", *(frames or every)]
        failed += not passed
        click.echo(f"{'ok' if passed else 'FAILED':8}{what}")
        for line in told:
            click.echo(f"        {line}")
        if failed and place == 0:
            break
    said = f"{plural(failed, 'check')} failed" if failed else "all checks passed"
    click.echo(f"{name}: {said}.")
    return not failed


def _shape(kind: str, name: str, given: str, vocabulary: int | None) -> Shape:
    """Return the shape of a model's input; with a `vocabulary`, the shape of a text that is padded with id 0."""
    sides = _sides(given)
    if vocabulary is None:
        if kind == "model" and (models.module_of(name) in TEXTS):
            raise InputError(
                f"{name} takes texts: give --shape=<tokens in a text> and --vocabulary=<number of ids>, such as "
                "--shape=60 --vocabulary=5000."
            )
        return sides
    if len(sides) != 1:
        raise InputError(
            f"--shape is {given!r}; with --vocabulary it must be one number, the tokens in a text, such as --shape=60."
        )
    return TokenShape(sides, vocabulary, padding=0)


def _sides(shape: str) -> tuple[int, ...]:
    try:
        sides = tuple(int(side) for side in shape.split(","))
    except ValueError:
        sides = ()
    if not sides or min(sides) < 1:
        raise InputError(f"--shape is {shape!r}; it must be integers with commas, such as 3,32,32, 9,128 or 20.")
    return sides
