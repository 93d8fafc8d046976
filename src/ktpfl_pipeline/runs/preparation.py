"""The data of an experiment's runs: the public set, and the partition of the private samples over clients."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ktpfl_pipeline import models
from ktpfl_pipeline.config.checks import saying
from ktpfl_pipeline.config.parsing import method_of
from ktpfl_pipeline.config.schema import NO_PUBLIC, OPEN_PART, Experiment
from ktpfl_pipeline.core.machine.resources import used_up_by
from ktpfl_pipeline.core.rounds import contract
from ktpfl_pipeline.core.warnings import recall, warn
from ktpfl_pipeline.data import public
from ktpfl_pipeline.data.feature_skew import FeatureSkew
from ktpfl_pipeline.data.federated import FederatedData, PublicSet
from ktpfl_pipeline.data.inspection import of_splits
from ktpfl_pipeline.data.partition import NATURAL, ClientIndices, natural, partition
from ktpfl_pipeline.data.sources.files import path_in
from ktpfl_pipeline.models import pretrained, transformers
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.samples import check_owners, keeping_warnings, load_private, load_public

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)
Partition = dict[int, ClientIndices]
"""The indices of each client's private samples."""
ANY = 2**62
"""A number of samples that no source reaches."""


@used_up_by("Making the public set")
@keeping_warnings
def sample_public_set(experiment: Experiment, private: Any, public_images: Any) -> Any:
    """Return the `PublicSet`: an open part of the private data, a public dataset without private samples, or none."""
    recall(public_images.warnings)
    inputs = public_images.inputs
    if experiment.public.source == NO_PUBLIC:
        return PublicSet(inputs, dict.fromkeys(experiment.seeds, torch.arange(0)))
    if experiment.public.source == OPEN_PART:
        if experiment.partition.scheme == NATURAL:
            warn(
                "Public samples",
                f"public.source is open_part, which shares {100 * experiment.public.share:.0f} % of the clients' own "
                "samples with all clients: that is for simulation only. In a real federation take public inputs of "
                "another origin, which belong to no client (public.source: npz:<file>, folder:<folder> or included).",
            )
        groups = _groups(experiment, private)
        drawn = {s: public.open_indices(private, experiment.public.share, s, groups) for s in experiment.seeds}
        indices, left_out = {s: chosen for s, (chosen, _) in drawn.items()}, {s: n for s, (_, n) in drawn.items()}
    else:
        inputs = public.without_overlap(inputs, private.inputs)
        indices = dict.fromkeys(experiment.seeds, torch.arange(len(inputs)))
        left_out = dict.fromkeys(experiment.seeds, 0)
    fewest = min(indices, key=lambda seed: len(indices[seed]))
    public.check_size(len(indices[fewest]), experiment.public.batch, left_out[fewest])
    return PublicSet(inputs, indices)


@used_up_by("Partitioning the samples")
def partition_clients(
    experiment: Experiment, private: Any, public_set: Any, raw_folder: Path, *, methods: tuple[str, ...] = ()
) -> tuple[Any, Any]:
    """Return the `FederatedData` for all methods, and the partition of every seed as a table for the user.

    Raises InputError if the samples cannot be partitioned as configured, or a method cannot use the clients' models.
    """
    made = federated(experiment, private, public_set, raw_folder)
    if methods:
        created = {name: method_of(experiment, name) for name in methods}
        contract.check_methods(created, assemble(experiment, made, experiment.seeds[0]))
    return made, to_table(made.partitions, private.labels, made.names)


@keeping_warnings
def federated(experiment: Experiment, private: Any, public_set: Any, raw_folder: Path) -> Any:
    recall((*private.warnings, *public_set.warnings))
    asked = experiment.partition
    skew = None if asked.feature_skew == "none" else (asked.feature_skew, asked.feature_levels)
    if skew:
        FeatureSkew(*skew, 0).check(private.inputs)
    partitions = {seed: _partition_of(experiment, private, public_set, seed) for seed in experiment.seeds}
    names: dict[int, tuple[str, ...]] = {}  # the owners of samples by seed and client, if the source names them
    for seed, clients in partitions.items() if asked.scheme == NATURAL else ():
        first = [own.train[0] for _, own in sorted(clients.items())]
        names[seed] = tuple(private.names[int(private.owners[sample])] for sample in first)
    of_splits(private, partitions, names, experiment.private.source)
    return FederatedData(
        private, public_set, partitions, experiment.of_data(), skew, names, _pretrained(experiment, private, raw_folder)
    )


def _partition_of(experiment: Experiment, private: Any, public_set: PublicSet, seed: int) -> Partition:
    """Return the partition of one seed. Samples of the open part belong to no client."""
    free = torch.ones(len(private), dtype=torch.bool)
    if experiment.public.source == OPEN_PART:
        free[public_set.indices[seed]] = False
    settings, pool = vars(experiment.partition).copy(), free.nonzero().flatten()
    settings["groups"] = _groups(experiment, private)
    if (scheme := settings.pop("scheme")) == NATURAL:
        return natural(private, experiment.clients, seed, pool=pool, **settings)
    clients = cast("int", experiment.clients)  # null only with natural, see `config.checks`
    return partition(private.labels, clients, scheme, seed, pool=pool, test=private.test, **settings)


def _groups(experiment: Experiment, private: Any) -> Any:
    """Return the group of each sample, (M,) int64, that splits keep together; None without groups."""
    return private.copies if private.groups is None and experiment.partition.keep_equal else private.groups


def to_table(partitions: dict[int, Partition], labels: Tensor, names: Mapping[int, Sequence[str]]) -> "pd.DataFrame":
    """Return a table with one row per seed and private sample: seed, client, split, index and label.

    `names` are the clients' names by seed. If there are any, the table has a column ``owner``.
    """
    import pandas as pd

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


def prepare(experiment: Experiment, raw_folder: Path, loaded: dict[str, Any] | None = None) -> Any:
    """Return the `FederatedData` of an experiment without its pipeline, for studies and benchmarks.

    `loaded` is a cache of samples by source. Calls with the same dict load equal samples once.

    Raises:
        InputError: if the samples and the settings do not fit together.
    """
    loaded = {} if loaded is None else loaded
    drawn = experiment.private_samples(ANY) if experiment.private.samples_per_client else None
    own = repr((experiment.private, experiment.image, experiment.text, drawn))
    other = f"{own} {experiment.public.source}"
    if own not in loaded:
        loaded[own] = load_private(experiment, raw_folder)
    check_owners(experiment, loaded[own], raw_folder)  # an experiment without owners may have filled `loaded`
    if other not in loaded:
        loaded[other] = load_public(experiment, raw_folder, loaded[own])
    return federated(experiment, loaded[own], sample_public_set(experiment, loaded[own], loaded[other]), raw_folder)


def _pretrained(experiment: Experiment, private: Any, raw_folder: Path) -> dict[str, Any]:
    """Return the pretrained weights by architecture, after checking that they fit the architecture."""
    found = {}
    own = transformers.weights(experiment.models())
    for name, file in {**own, **experiment.pretrained}.items():
        path = path_in("pretrained", file, raw_folder, "pretrained: {resnet18: weights/resnet18.pth}")
        found[name] = pretrained.read(path)
        model = models.build(name, private.shape, private.classes)
        with saying(f"{path}: "):
            taken, all_of_them = pretrained.load(name, model, found[name]), len(list(model.parameters()))
        logger.info(f"{name} starts from {file}: {taken} of its {all_of_them} parameters, the others drawn at random.")
    return found
