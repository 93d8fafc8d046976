"""Nodes that read images."""

from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def load_private(experiment: Experiment, raw_folder: Path) -> Any:
    """Return the private `LabelledDataset`, (M, C, H, W) uint8 with labels, in the experiment's channels and size."""
    from ktpfl_pipeline.core.dataset import LabelledDataset
    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.data.sources import load

    samples = load(experiment.private.source, raw_folder, experiment.private.classes)
    if samples.labels.min() == samples.labels.max():
        raise InputError(f"All images of {experiment.private.source} kept have one class; name two in private.classes.")
    if experiment.private.samples is not None:
        samples = _draw(samples, experiment.private.samples)
    return LabelledDataset(_adapted(experiment, samples.inputs), samples.labels)


def load_public(experiment: Experiment, raw_folder: Path, private: Any) -> Any:
    """Return the images the public set is taken from, (M, C, H, W) uint8; for an open part, the private ones."""
    from ktpfl_pipeline.data.sources import load

    if experiment.public.source == "open_part":
        return private.inputs
    return _adapted(experiment, load(experiment.public.source, raw_folder).inputs)


def _adapted(experiment: Experiment, inputs: Any) -> Any:
    """Return inputs with the experiment's channels and size; as they are where it names none."""
    from ktpfl_pipeline.data.sources import adapt

    return inputs if experiment.image is None else adapt(inputs, experiment.image.channels, experiment.image.size)


def _draw(samples: Any, total: int) -> Any:
    """Return `total` of the samples, stratified by class: the same for every seed, for they are the experiment's."""
    import numpy as np
    import torch

    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.core.rng import derive
    from ktpfl_pipeline.data.partition import draw_stratified

    if total > len(samples):
        raise InputError(
            f"private.samples is {total:,} and there are {len(samples):,} private images: lower it, or take all with "
            "private.samples: null."
        )
    rng = np.random.default_rng(derive(0, "private samples"))
    drawn = samples.take(torch.from_numpy(draw_stratified(samples.labels.numpy(), total, rng)).nonzero().flatten())
    lost = sorted(set(samples.labels.tolist()) - set(drawn.labels.tolist()))
    if lost:
        raise InputError(f"private.samples is {total:,}, which leaves class {lost[0]} without an image: raise it.")
    return drawn
