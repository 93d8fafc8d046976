"""The natural partition: every sample belongs to the client that the source names as its owner."""

import logging
from typing import Any

import numpy as np
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.core.validation import check
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition.split import ClientIndices, is_whole, least_samples, shortage, split, stream
from ktpfl_pipeline.data.settings import Partition

NATURAL = "natural"
"""The name of the scheme in conf/ and in reports."""

logger = logging.getLogger(__name__)


def natural(
    dataset: OwnedDataset,
    clients: int | None,
    seed: int,
    *,
    pool: Tensor | None = None,
    groups: Tensor | None = None,
    **settings: Any,
) -> dict[int, ClientIndices]:
    """Give the samples to their owners, and split each owner's samples into train, validation and test.

    If the source marks test samples, these are used. Otherwise test samples are drawn as in `partition`. Validation
    samples are drawn from the remaining samples.

    Args:
        dataset: M samples with their owners.
        clients: N, the number of owners that become clients, drawn for each seed; None for all owners.
        seed: the seed of the run. The split of an owner does not depend on the other owners.
        pool: (n,), indices of the samples to use, without repetition; None for all samples.
        groups: (M,) int64, the group of each sample, which no split separates; None without groups.
        settings: `minimum`, `test_share` and `validation_share` of `data.settings.Partition`. Owners with fewer than
            `minimum` samples, or without samples, are left out. If `minimum` is above 0, owners whose samples cannot be
            split are left out too. The log names some. `test_share` is not used if the source marks test samples.

    Returns:
        The indices of the clients 0 to N - 1, in the order of the owners' numbers.

    Raises:
        InputError: if there are too few owners, or a drawn owner has too few samples to be split.
    """
    how = Partition(NATURAL, **settings)
    check(how, "partition")
    indices = np.arange(len(dataset)) if pool is None else np.sort(pool.numpy())
    owners = dataset.owners.numpy()[indices]
    sizes = np.bincount(owners, minlength=len(dataset.names))
    fewest = max(how.minimum, 1)  # with private.classes or private.samples, an owner may have no samples
    of_owner = np.split(indices[np.argsort(owners, kind="stable")], np.cumsum(sizes)[:-1])
    parts = {}
    for owner in np.flatnonzero(sizes >= fewest).tolist():
        parts[owner] = split(of_owner[owner], dataset.labels, how, stream(seed, "split", owner), dataset.test, groups)
    if how.minimum:
        parts = {owner: own for owner, own in parts.items() if is_whole(own, how)}
    kept = np.array([*parts], dtype=np.int64)
    if len(kept) < len(sizes):
        out = ", ".join(dataset.names[owner] for owner in np.setdiff1d(np.arange(len(sizes)), kept)[:10])
        few = f"fewer than {plural(fewest, 'sample')}, or too few to be split" if how.minimum else "no samples"
        of = f"{len(sizes) - len(kept):,} of {plural(len(sizes), 'client')}"
        logger.info(f"Seed {seed}: the partition leaves out {of}: {out}. Each has {few}.")
    if clients is None:
        clients = len(kept)
    if not 1 <= clients <= len(kept):
        enough = f" with {plural(how.minimum, 'sample')} or more (partition.minimum)" if how.minimum else ""
        most = f"Choose at most {len(kept):,}, or null for all." if len(kept) else _lower(how, sizes)
        raise InputError(
            f"a federation of {plural(clients, 'client')} is not possible: the source has {len(kept):,} of"
            f" them{enough}. {most}"
        )
    if clients < len(kept):
        kept = np.sort(stream(seed, "partition", NATURAL).permutation(kept)[:clients])
    for owner in kept.tolist():
        if not is_whole(own := parts[owner], how):
            raise InputError(
                f"client {dataset.names[owner]!r} of the source has {shortage(own, how)}. {_lower(how, sizes)}"
            )
    return {client: parts[owner] for client, owner in enumerate(kept.tolist())}


def _lower(how: Partition, sizes: "np.ndarray[Any, Any]") -> str:
    """Return what to do about clients that are too small. `sizes` are the clients' numbers of samples, (n,)."""
    needed, largest = least_samples(how), int(sizes.max())
    shares = "public.share, if public.source is open_part, partition.test_share or partition.validation_share"
    if largest < needed:
        return f"The largest client has {plural(largest, 'sample')}, and {needed} are needed: lower {shares}."
    if largest < how.minimum:
        return f"The largest client has {plural(largest, 'sample')}: lower partition.minimum, to {needed} or more."
    have = f"{int((sizes >= needed).sum()):,} of {plural(len(sizes), 'client')} have as many"
    return f"Leave such clients out with partition.minimum: {needed}, as {have}, or lower {shares}."
