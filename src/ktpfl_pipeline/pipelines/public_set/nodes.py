"""Nodes that make the public set."""

from typing import Any

from ktpfl_pipeline.config.schema import NO_PUBLIC, OPEN_PART, Experiment


def sample_public_set(experiment: Experiment, private: Any, public_images: Any) -> Any:
    """Return the `PublicSet`: an open part of the private data, the other dataset less what is private, or nothing."""
    import torch

    from ktpfl_pipeline.data import public
    from ktpfl_pipeline.data.federated import PublicSet

    if experiment.public.source == NO_PUBLIC:
        return PublicSet(public_images, dict.fromkeys(experiment.seeds, torch.arange(0)))
    if experiment.public.source == OPEN_PART:
        indices = {s: public.open_indices(private, experiment.public.share, s) for s in experiment.seeds}
    else:
        public_images = public.without_overlap(public_images, private.inputs)
        indices = dict.fromkeys(experiment.seeds, torch.arange(len(public_images)))
    public.check_size(min(len(chosen) for chosen in indices.values()), experiment.public.batch)
    return PublicSet(public_images, indices)
