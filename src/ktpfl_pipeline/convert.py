"""The command `ktpfl convert`: it converts a dataset to an `.npz` file for the setting `private.source`."""

from pathlib import Path
from typing import Any

import click

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.data.registry import RAW

FOLDER = click.argument("folder", type=click.Path(path_type=Path))
OUT = click.argument("out", type=click.Path(path_type=Path))


@click.group()
def convert() -> None:
    """Convert a dataset to an .npz file. Then set private.source to npz:<file>."""


@convert.command()
@FOLDER
@OUT
def pfllib(folder: Path, out: Path) -> None:
    """Convert a dataset of PFLlib: FOLDER contains train/0.npz, test/0.npz and so on; OUT is the new .npz file."""
    from ktpfl_pipeline.data.converters import pfllib

    _write(out, lambda: pfllib.convert(folder))


@convert.command("csv")
@click.argument("table", type=click.Path(path_type=Path))
@OUT
@click.option("--label", help="The column that contains the class of each row. Needed without --like.")
@click.option("--client", help="The column that contains the client of each row, such as the hospital.")
@click.option("--group", help="The column of what belongs together, such as the patient; see docs/how_to/own_data.md.")
@click.option("--drop", multiple=True, help="A column to leave out, such as an id; may be given several times.")
@click.option(
    "--missing", multiple=True, help="A string that means a missing value, in any column; may be given several times."
)
@click.option(
    "--text", multiple=True, help="A column of categories that look like numbers; may be given several times."
)
@click.option("--drop-rows", is_flag=True, help="Leave out rows with a missing value instead of filling it.")
@click.option("--decimal", default=".", show_default=True, help="The decimal separator of numbers.")
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    help="An .npz file of this command: encode TABLE with its features, and missing cells with its medians.",
)
def csv(table: Path, out: Path, label: str | None, client: str | None, like: Path | None, **others: Any) -> None:
    """Convert a CSV file: TABLE contains features and a label column; OUT is the new .npz file.

    A numeric column becomes one feature with the same values. A text column is one-hot encoded, one feature per value.
    """
    from ktpfl_pipeline.data.converters import tables
    from ktpfl_pipeline.data.sources import npz

    if not (label or like):
        raise click.UsageError("Missing option '--label'.")

    def arrays() -> Any:
        known = None if like is None else npz.encoding(like)
        made, columns = tables.convert(table, label, client, **others, like=known)
        for line in columns:
            click.echo(line)
        return made

    _write(out, arrays)


def _read(partial: Path, out: Path, labeled: bool) -> Any:
    """Return the inputs of the unfinished file `partial`. Raises InputError, whose message names `out` instead."""
    from ktpfl_pipeline.data.sources import npz

    try:
        return npz.read(partial).inputs if labeled else npz.unlabeled(str(partial), partial.parent)[0]
    except InputError as error:
        raise InputError(str(error).replace(str(partial), str(out))) from error


def _write(out: Path, arrays: Any) -> None:
    """Call `arrays`, write the arrays that it returns to `out`, and check that the file can be read as a source.

    Raises ClickException if `out` exists or does not end in .npz, or if the arrays cannot be made, written or read.
    """
    import numpy as np

    from ktpfl_pipeline.core.machine.files import replacing

    try:
        if out.suffix != ".npz" or out.exists():
            raise InputError(f"{out} is there already, or does not end in .npz: name a new file.")
        made = arrays()
        with replacing(out, summed=True) as partial:
            with partial.open("wb") as file:
                np.savez_compressed(file, **made)
            inputs = _read(partial, out, "labels" in made)
    except InputError as error:
        raise click.ClickException(str(error)) from error
    shape, clients = tuple(inputs.shape[1:]), made.get("clients")
    who = "" if clients is None else f", {plural(len(np.unique(clients)), 'client')}"
    found, raw = out.absolute(), RAW.absolute()
    source = found.relative_to(raw) if found.is_relative_to(raw) else found
    click.echo(f"{out}: {plural(len(inputs), 'sample')} of shape {shape}{who}; private.source: npz:{source}")
