"""Nodes that make the public set."""

import logging
from typing import Any

from ktpfl_pipeline.config.schema import NO_PUBLIC, OPEN_PART, Experiment

logger = logging.getLogger(__name__)


def sample_public_set(experiment: Experiment, private: Any, public_images: Any) -> Any:
    """Return the `PublicSet`: an open part of the private data, the other dataset less what is private, or nothing."""
    from ktpfl_pipeline.core.machine.memory import used_up_by

    with used_up_by("Making the public set"):
        return _sample_public_set(experiment, private, public_images)


def _sample_public_set(experiment: Experiment, private: Any, public_images: Any) -> Any:
    import torch

    from ktpfl_pipeline.data import public
    from ktpfl_pipeline.data.federated import PublicSet
    from ktpfl_pipeline.data.partition import NATURAL

    if experiment.public.source == NO_PUBLIC:
        return PublicSet(public_images, dict.fromkeys(experiment.seeds, torch.arange(0)))
    if experiment.public.source == OPEN_PART:
        if experiment.partition.scheme == NATURAL:
            logger.warning(
                "public.source is open_part, which shares %.0f %% of the clients' own samples with all clients: that is"
                " for simulation only. In a real federation take public inputs of another origin, which belong to no"
                " client (public.source: npz:<file>, folder:<folder> or included).",
                100 * experiment.public.share,
            )
        indices = {s: public.open_indices(private, experiment.public.share, s) for s in experiment.seeds}
    else:
        public_images = public.without_overlap(public_images, private.inputs)
        indices = dict.fromkeys(experiment.seeds, torch.arange(len(public_images)))
    public.check_size(min(len(chosen) for chosen in indices.values()), experiment.public.batch)
    return PublicSet(public_images, indices)
