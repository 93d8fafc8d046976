"""Checks of the requirements for a source of samples."""

from collections.abc import Callable
from pathlib import Path

from ktpfl_pipeline.check import toy
from ktpfl_pipeline.check.methods import demand
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import plural
from ktpfl_pipeline.data import sources
from ktpfl_pipeline.data.inspection import axes, names, names_of_no_value, pixels
from ktpfl_pipeline.data.owned import OwnedDataset


def checks(source: str, folder: Path) -> dict[str, Callable[[], list[str] | None]]:
    """Return the checks of a source, given with its argument, by name, in order. Relative paths start at `folder`."""
    found = list[LabeledDataset]()

    def reads() -> list[str]:
        found.append(sources.load(source, folder))
        samples, counts = found[0], found[0].labels.bincount()
        own = [plural(len(samples.names), "owner")] if isinstance(samples, OwnedDataset) else []
        least, most = int(counts.min()), int(counts.max())
        kind = str(samples.inputs.dtype).removeprefix("torch.")
        sizes = f"{plural(len(samples), 'sample')} of {' x '.join(map(str, samples.shape))} in {kind}"
        return [", ".join([sizes, f"{plural(len(counts), 'class')} with {least:,} to {most:,} samples each", *own])]

    def numbers() -> None:
        counts = found[0].labels.bincount()
        demand(len(counts) > 1, "all samples have one class; at least two are needed")
        empty = (counts == 0).nonzero().flatten().tolist()
        demand(not empty, f"no sample has class {empty[:1]}, though higher numbers occur: number classes without gaps")

    def usual() -> list[str]:
        order, narrow = axes(found[0].inputs), pixels(found[0].inputs)
        demand(not order, f"{order}, or return them in this order")
        return [*names(found[0]), *names_of_no_value(found[0]), *([narrow] if narrow else [])]

    def repeats() -> None:
        where = toy.difference(found[0], sources.load(source, folder))
        demand(not where, f"it returned other samples the second time ({where}): seed what it draws, and sort files")

    return {
        "returns samples that can be used": reads,
        "numbers its classes from 0 without gaps": numbers,
        "has channels first, and names that are told apart": usual,
        "returns the same samples again": repeats,
    }
