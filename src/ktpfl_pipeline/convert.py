"""`ktpfl convert`: a federation in another form, written as an `.npz` file that `private.source` reads."""

from pathlib import Path
from typing import Any

import click

from ktpfl_pipeline.core.errors import InputError

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


@convert.command("uci_har")
@FOLDER
@OUT
@click.option("--public", default=0, show_default=True, help="So many people's windows become the public set.")
def uci_har(folder: Path, out: Path, public: int) -> None:
    """UCI HAR's FOLDER 'UCI HAR Dataset' into the file OUT: people are the clients."""
    from ktpfl_pipeline.data.converters import uci_har

    _write(out, lambda: uci_har.convert(folder, public))


def _write(out: Path, arrays: Any) -> None:
    """Write the arrays that a function returns, once they can be read as a source; a refusal is one line."""
    import numpy as np

    from ktpfl_pipeline.data.sources import npz
    from ktpfl_pipeline.pipelines.whole_files import replacing

    try:
        if out.suffix != ".npz" or out.exists():
            raise InputError(f"{out} is there already, or does not end in .npz: name a new file.")
        made = arrays()
        with replacing(out) as partial:
            with partial.open("wb") as file:
                np.savez_compressed(file, **made)
            samples = npz.read(partial)
    except InputError as error:
        raise click.ClickException(str(error)) from error
    shape, clients = tuple(samples.inputs.shape[1:]), len(np.unique(made["clients"]))
    click.echo(
        f"{out}: {len(samples):,} samples of shape {shape}, {clients} clients; private.source: npz:{out.absolute()}"
    )
