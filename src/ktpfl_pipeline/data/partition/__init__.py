"""The distribution of samples among clients, and the split of each client's samples into train, validation and test.

`partition` distributes samples by a scheme of `SCHEMES`. `natural` uses the clients that the source names.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, plural, unknown
from ktpfl_pipeline.core.validation import check
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition.schemes import SCHEMES
from ktpfl_pipeline.data.partition.split import (
    Array,
    ClientIndices,
    draw_stratified,
    enough,
    fits,
    is_whole,
    least,
    least_samples,
    shortage,
    split,
    stream,
)
from ktpfl_pipeline.data.registry import NATURAL
from ktpfl_pipeline.data.settings import Partition

__all__ = [
    "NATURAL",
    "SCHEMES",
    "ClientIndices",
    "draw_stratified",
    "label_counts",
    "label_similarity",
    "natural",
    "partition",
]


logger = logging.getLogger(__name__)


def partition(
    labels: Tensor,
    clients: int,
    scheme: str,
    seed: int,
    *,
    pool: Tensor | None = None,
    test: Tensor | None = None,
    groups: Tensor | None = None,
    **settings: Any,
) -> dict[int, ClientIndices]:
    """Distribute the samples among the clients, and split each client's samples into train, validation and test.

    Every sample of the pool belongs to exactly one split of one client. The splits of a client are stratified: each has
    the client's label distribution, up to rounding (KT-pFL section 5.1: 75 % train, 25 % test). Validation samples are
    taken from the training part; the paper has none.

    Args:
        labels: (M,), class numbers of the dataset.
        clients: N, the number of clients.
        scheme: a name of `SCHEMES`.
        seed: the seed of the run. The split of a client depends only on the seed, the client's number and its samples.
        pool: (n,), indices of the samples to distribute, without repetition; None for all samples.
        test: (M,) bool, the test samples of the source; None draws test samples.
        groups: (M,) int64, the group of each sample: all samples of a group go to one client, that of its first sample,
            and to one of its splits. None without groups.
        settings: fields of `data.settings.Partition` in addition to `scheme`. With a `minimum`, `dirichlet` is drawn
            again until all clients have the minimum, and `quantity` gives the minimum to all clients. With other
            schemes, a client with fewer samples is an error. The number of test samples is rounded up. The number of
            validation samples is rounded, to at least one unless their share is 0.

    Returns:
        The indices of the clients 0 to N - 1. Each client has at least two training samples, one test sample and,
        unless the validation share is 0, one validation sample.

    Raises:
        InputError: if the scheme is unknown, a setting is invalid, or the samples cannot be distributed so that each
            client has enough.
    """
    if scheme not in SCHEMES:
        raise unknown("partition scheme", scheme, SCHEMES)
    if clients < 1:
        raise InputError(f"a federation of {clients} clients is not possible: choose 1 client or more.")
    how = Partition(scheme, **settings)
    check(how, "partition")
    indices = np.arange(len(labels)) if pool is None else pool.numpy()
    if len(np.unique(indices)) < len(indices):
        raise ValueError("the pool names a sample twice")
    shares: dict[int, Array] = {}
    if fits(len(indices) // clients, how):  # at least one client gets at most this number
        surely = enough(how, limit=len(indices))
        raised = replace(how, minimum=max(how.minimum, surely))
        owner = SCHEMES[scheme](labels.numpy()[indices], clients, seed, raised, surely)
        if groups is not None:
            _, first, unit = np.unique(groups.numpy()[indices], return_index=True, return_inverse=True)
            owner = owner[first][unit]
        shares = {client: np.sort(indices[owner == client]) for client in range(clients)}
    if not shares or not all(fits(len(share), how) for share in shares.values()):
        raise InputError(
            f"{len(indices):,} samples are too few for {plural(clients, 'client')} under {scheme}: {least(how)}."
            " Lower clients or test_share, or take a source with more samples."
        )
    if (fewest := min(map(len, shares.values()))) < how.minimum:
        raise InputError(
            f"{scheme} leaves a client with {fewest:,} of the {len(indices):,} samples, and partition.minimum is"
            f" {how.minimum:,}: lower it or clients."
        )
    parts = {n: split(share, labels, how, stream(seed, "split", n), test, groups) for n, share in shares.items()}
    for client, own in parts.items():
        if not is_whole(own, how):
            raise InputError(
                f"the source has a split of its own, by which client {client} has {shortage(own, how)}. Lower clients,"
                " or choose another partition.scheme."
            )
    return parts


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


def label_counts(labels: Tensor, indices: dict[int, ClientIndices], classes: int) -> Tensor:
    """Return the number of samples per client and class over all splits, (N, K) int64, clients in ascending order."""
    return torch.stack([torch.bincount(labels[torch.cat(indices[n])], minlength=classes) for n in sorted(indices)])


def label_similarity(counts: Tensor) -> Tensor:
    """Return the cosine similarity of clients' label distributions, (N, N) float64 in 0..1, from `counts`, (N, K)."""
    directions = torch.nn.functional.normalize(counts.double(), dim=1)
    return (directions @ directions.T).clamp(0, 1)
