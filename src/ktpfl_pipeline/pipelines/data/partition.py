"""The partition, and the table of it that a person can open."""

from collections.abc import Mapping, Sequence
from typing import cast

import pandas as pd
import torch
from torch import Tensor

from ktpfl_pipeline.config.schema import OPEN_PART, Experiment
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.data.feature_skew import FeatureSkew
from ktpfl_pipeline.data.federated import PublicSet
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import NATURAL, ClientIndices, natural, partition

Partition = dict[int, ClientIndices]
"""The private samples of each client."""


def partitions_of(experiment: Experiment, private: LabelledDataset, public_set: PublicSet) -> dict[int, Partition]:
    """Return the partition of each seed of an experiment; samples of an open part belong to no client."""
    asked = experiment.partition
    if asked.feature_skew != "none":
        FeatureSkew(asked.feature_skew, asked.feature_levels, 0).check(private.inputs)
    return {seed: _partition(experiment, private, public_set, seed) for seed in experiment.seeds}


def _partition(experiment: Experiment, private: LabelledDataset, public_set: PublicSet, seed: int) -> Partition:
    free = torch.ones(len(private), dtype=torch.bool)
    if experiment.public.source == OPEN_PART:
        free[public_set.indices[seed]] = False
    settings, pool = vars(experiment.partition).copy(), free.nonzero().flatten()
    if (scheme := settings.pop("scheme")) == NATURAL:
        return natural(private, experiment.clients, seed, pool=pool, **settings)
    clients = cast("int", experiment.clients)  # null only with natural, see `config.checks`
    return partition(private.labels, clients, scheme, seed, pool=pool, test=private.test, **settings)


def owners(private: LabelledDataset, partitions: dict[int, Partition]) -> dict[int, tuple[str, ...]]:
    """Return by seed what the source calls each client of a natural partition, in order of client."""
    if not isinstance(private, OwnedDataset):
        return {}
    return {
        seed: tuple(private.names[int(private.owners[own.train[0]])] for _, own in sorted(clients.items()))
        for seed, clients in partitions.items()
    }


def to_table(
    partitions: dict[int, Partition], labels: Tensor, names: Mapping[int, Sequence[str]] | None = None
) -> pd.DataFrame:
    """Return one row per private sample: seed, client, split, index into the private samples, label.

    With the `names` of the clients by seed, a column has that of the owner.
    """
    parts = [
        pd.DataFrame(
            {"seed": seed, "client": client, "split": split, "index": indices, "label": labels[indices].numpy()}
            | ({"owner": names[seed][client]} if names else {})
        )
        for seed, clients in partitions.items()
        for client, own in clients.items()
        for split, owned in own._asdict().items()
        for indices in [owned.numpy()]
    ]
    return pd.concat(parts, ignore_index=True)
