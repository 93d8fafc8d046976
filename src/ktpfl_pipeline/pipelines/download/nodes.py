"""Nodes that read images."""

from pathlib import Path
from typing import Any

from ktpfl_pipeline.params import Experiment


def load_private(experiment: Experiment, raw_folder: Path) -> Any:
    """Return the private `Samples`, (M, C, H, W) uint8 with labels, in the experiment's channels and size."""
    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.core.samples import Samples
    from ktpfl_pipeline.data.sources import adapt, load

    samples = load(experiment.private.source, raw_folder, experiment.private.classes)
    if samples.labels.min() == samples.labels.max():
        raise InputError(f"All images of {experiment.private.source} kept have one class; name two in private.classes.")
    return Samples(adapt(samples.images, experiment.image.channels, experiment.image.size), samples.labels)


def load_public(experiment: Experiment, raw_folder: Path, private: Any) -> Any:
    """Return the images the public set is taken from, (M, C, H, W) uint8; for an open part, the private ones."""
    from ktpfl_pipeline.data.sources import adapt, load

    if experiment.public.source == "open_part":
        return private.images
    images = load(experiment.public.source, raw_folder).images
    return adapt(images, experiment.image.channels, experiment.image.size)
