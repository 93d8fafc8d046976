"""Which client gets which samples, and which of them are for training, validation and test.

`partition` shares samples out by a scheme of `SCHEMES`; `natural` leaves them with the owners that they came with.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, plural, unknown
from ktpfl_pipeline.core.validation import check
from ktpfl_pipeline.data.partition.natural import NATURAL, natural
from ktpfl_pipeline.data.partition.schemes import SCHEMES
from ktpfl_pipeline.data.partition.split import (
    Array,
    ClientIndices,
    draw_stratified,
    enough,
    fits,
    is_whole,
    least,
    shortage,
    split,
    stream,
)
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


def partition(
    labels: Tensor,
    clients: int,
    scheme: str,
    seed: int,
    *,
    pool: Tensor | None = None,
    test: Tensor | None = None,
    **settings: Any,
) -> dict[int, ClientIndices]:
    """Share the samples out among the clients, and split each client's share into train, validation and test.

    Every sample of the pool goes to exactly one split of one client. Within a client the splits are stratified: each
    has the client's own label distribution, up to rounding (KT-pFL section 5.1: 75 % train, 25 % test). Validation
    samples, which the paper does not have, are taken from the training part.

    Args:
        labels: (M,), class numbers of the dataset.
        clients: N, how many clients.
        scheme: a name of `SCHEMES`.
        seed: the run's seed; the split of a client depends only on it, the client's number and the client's samples.
        pool: (n,), indices of the samples to share out, each once; None for all.
        test: (M,) bool, the samples that the source gives to test on; None draws them.
        settings: fields of `data.settings.Partition` in addition to `scheme`. With a `minimum`, `dirichlet` is drawn
            again until all clients have it, `quantity` gives it to all, and with another scheme fewer samples are an
            error. The test samples are rounded up, the validation samples rounded, to at least one unless their share
            is 0.

    It returns the indices of the clients 0 to N - 1, each with at least two training samples, one test sample and,
    unless the validation share is 0, one validation sample; else an `InputError` says what is not possible.
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
    if fits(len(indices) // clients, how):  # some client gets at most so many
        surely = enough(how, limit=len(indices))
        raised = replace(how, minimum=max(how.minimum, surely))
        owner = SCHEMES[scheme](labels.numpy()[indices], clients, seed, raised, surely)
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
    parts = {n: split(share, labels, how, stream(seed, "split", n), test) for n, share in shares.items()}
    for client, own in parts.items():
        if not is_whole(own, how):
            raise InputError(
                f"the source has a split of its own, by which client {client} has {shortage(own, how)}. Lower clients,"
                " or choose another partition.scheme."
            )
    return parts


def label_counts(labels: Tensor, indices: dict[int, ClientIndices], classes: int) -> Tensor:
    """Return how many samples of each class each client has, all splits together, (N, K) int64, in order of client."""
    return torch.stack([torch.bincount(labels[torch.cat(indices[n])], minlength=classes) for n in sorted(indices)])


def label_similarity(counts: Tensor) -> Tensor:
    """Return the cosine similarity of the clients' label distributions, (N, N) float64 in [0, 1], of (N, K) counts."""
    directions = torch.nn.functional.normalize(counts.double(), dim=1)
    return (directions @ directions.T).clamp(0, 1)
