"""The partition as a table that a person can open, and back."""

from typing import cast

import pandas as pd
import torch
from torch import Tensor

from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.data.federated import PublicSet
from ktpfl_pipeline.data.partition import ClientIndices, partition

SPLITS = ("train", "validation", "test")


def partition_for_seed(
    experiment: Experiment, private: LabelledDataset, public_set: PublicSet, seed: int
) -> dict[int, ClientIndices]:
    """Return who owns which private images with one seed; those of an open part are nobody's."""
    free = torch.ones(len(private), dtype=torch.bool)
    if experiment.public.source == "open_part":
        free[public_set.indices[seed]] = False
    settings = experiment.partition
    return partition(
        private.labels,
        experiment.clients,
        settings.scheme,
        seed,
        alpha=settings.alpha,
        labels_per_client=settings.labels_per_client,
        test_share=settings.test_share,
        validation_share=settings.validation_share,
        pool=free.nonzero().flatten(),
    )


def to_table(partitions: dict[int, dict[int, ClientIndices]], labels: Tensor) -> pd.DataFrame:
    """Return one row per private image: seed, client, split, index into the private images, label."""
    parts = [
        pd.DataFrame(
            {"seed": seed, "client": client, "split": split, "index": indices, "label": labels[indices].numpy()}
        )
        for seed, clients in partitions.items()
        for client, own in clients.items()
        for split in SPLITS
        for indices in [getattr(own, split).numpy()]
    ]
    return pd.concat(parts, ignore_index=True)


def from_table(table: pd.DataFrame) -> dict[int, dict[int, ClientIndices]]:
    """Return the partition that `to_table` wrote, by seed and client."""
    partitions: dict[int, dict[int, ClientIndices]] = {}
    for names, own in table.groupby(["seed", "client"]):
        seed, client = cast("tuple[int, int]", names)
        indices = (own.loc[own["split"] == split, "index"].to_numpy(copy=True) for split in SPLITS)
        partitions.setdefault(seed, {})[client] = ClientIndices(*map(torch.from_numpy, indices))
    return partitions
