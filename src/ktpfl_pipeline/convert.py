"""`ktpfl convert`: a federation in another form, written as an `.npz` file that `private.source` reads."""

from pathlib import Path
from typing import Any

import click

from ktpfl_pipeline.core.errors import InputError, plural

FOLDER = click.argument("folder", type=click.Path(path_type=Path))
OUT = click.argument("out", type=click.Path(path_type=Path))


@click.group()
def convert() -> None:
    """Write a federation in another form as an .npz file: then private.source is npz:<file>."""


@convert.command()
@FOLDER
@OUT
def pfllib(folder: Path, out: Path) -> None:
    """PFLlib's FOLDER, with train/0.npz, test/0.npz and so on, into the file OUT."""
    from ktpfl_pipeline.data.converters import pfllib

    _write(out, lambda: pfllib.convert(folder))


@convert.command("csv")
@click.argument("table", type=click.Path(path_type=Path))
@OUT
@click.option("--label", required=True, help="The column with the class of each row.")
@click.option("--client", help="The column with the owner of each row, such as the hospital.")
@click.option("--drop", multiple=True, help="A column to leave out, such as an id; may be given several times.")
@click.option(
    "--missing", multiple=True, help="A string that means a missing value, in any column; may be given several times."
)
@click.option("--drop-rows", is_flag=True, help="Leave out rows with a missing value instead of filling it.")
@click.option("--decimal", default=".", show_default=True, help="What separates the decimals of a number.")
def csv(table: Path, out: Path, label: str, client: str | None, **others: Any) -> None:
    """A CSV TABLE of features, with a column of labels, into the file OUT.

    Columns of numbers are features as they are; columns of text become one feature per value.
    """
    from ktpfl_pipeline.data.converters import tables

    def arrays() -> Any:
        made, columns = tables.convert(table, label, client, **others)
        for line in columns:
            click.echo(line)
        return made

    _write(out, arrays)


def _read(partial: Path, out: Path) -> Any:
    """Return the samples of a file that is not at its place yet; an `InputError` names the place."""
    from ktpfl_pipeline.data.sources import npz

    try:
        return npz.read(partial)
    except InputError as error:
        raise InputError(str(error).replace(str(partial), str(out))) from error


def _write(out: Path, arrays: Any) -> None:
    """Write the arrays that a function returns, once they can be read as a source; a refusal is one line."""
    import numpy as np

    from ktpfl_pipeline.core.machine.files import replacing

    try:
        if out.suffix != ".npz" or out.exists():
            raise InputError(f"{out} is there already, or does not end in .npz: name a new file.")
        made = arrays()
        with replacing(out, summed=True) as partial:
            with partial.open("wb") as file:
                np.savez_compressed(file, **made)
            samples = _read(partial, out)
    except InputError as error:
        raise click.ClickException(str(error)) from error
    shape, clients = tuple(samples.inputs.shape[1:]), made.get("clients")
    who = "" if clients is None else f", {plural(len(np.unique(clients)), 'client')}"
    click.echo(f"{out}: {plural(len(samples), 'sample')} of shape {shape}{who}; private.source: npz:{out.absolute()}")
