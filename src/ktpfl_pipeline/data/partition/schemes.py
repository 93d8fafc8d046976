"""Partition schemes: they distribute the samples of a dataset among clients, from the labels only.

KT-pFL section 5.1 has two schemes, Non-IID_1 and Non-IID_2, and is not consistent about which name belongs to which
scheme. According to its Table 1 and its figure captions, `all_labels` is Non-IID_1 and `two_labels` is Non-IID_2.

N is the number of clients, M of samples and K of classes.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.data.partition.split import Array, stream
from ktpfl_pipeline.data.settings import Partition

MAX_DRAWS = 100  # the largest number of draws of `dirichlet`, after which it raises an error


Scheme = Callable[[Array, int, int, Partition, int], Array]
"""``scheme(labels, clients, seed, how, enough)`` returns the client of every sample, (M,) int64 in 0..N-1.

`how` has the settings of the partition, of which each scheme reads only its own. A client with `enough` samples can
always be split into train, validation and test; ``how.minimum`` is at least `enough`.
"""


def _iid(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """All clients have the same distribution: shuffled samples are assigned to the clients in equal numbers (± 1)."""
    owner = np.empty(len(labels), dtype=np.int64)
    owner[stream(seed, "partition", "iid").permutation(len(labels))] = np.arange(len(labels)) % clients
    return owner


def _all_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has every class, in different amounts (KT-pFL's Non-IID_1 by Table 1).

    The paper does not define the amounts. Here, each client first gets a minimum number of samples of every class:
    `enough` samples, which include at least one training sample and one test sample; one sample if the class has fewer
    than N · `enough` samples; none if the class has fewer than N samples. The remaining samples of each class are
    distributed by proportions from the uniform distribution over the simplex, Dirichlet(1, ..., 1).
    """
    counts = _above_a_floor(clients, enough, lambda draw: draw.dirichlet(np.ones(clients)))
    return _deal_classes(labels, counts, seed, "all_labels")


def _lognormal(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has every class, in amounts proportional to lognormal(0, sigma) draws, one per client and class.

    KT-pFL's released code uses this scheme with sigma 2 for experiments with one architecture, as does the code of
    pFedMe (Dinh et al., NeurIPS 2020). Both first give every client a few samples of each class; here this number is
    the minimum of `all_labels`. In contrast to both, every sample belongs to a client, and no uniform draw is added to
    the amounts.
    """

    def proportions(draw: np.random.Generator) -> NDArray[np.float64]:
        weights = draw.lognormal(0.0, how.sigma, clients)
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares

    return _deal_classes(labels, _above_a_floor(clients, enough, proportions), seed, "lognormal")


def _above_a_floor(
    clients: int, enough: int, proportions: Callable[[np.random.Generator], NDArray[np.float64]]
) -> Callable[[int, np.random.Generator], Array]:
    """Return the function `counts` for `_deal_classes`: a minimum for every client, and the rest by proportions.

    The minimum is `enough` samples if the class has as many for all clients, else one sample if possible, else none.
    """

    def counts(size: int, draw: np.random.Generator) -> Array:
        floor = enough if size >= clients * enough else int(size >= clients)
        return floor + _portions(proportions(draw), size - clients * floor)

    return counts


def _two_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has two classes (KT-pFL's Non-IID_2 by Table 1): `k_labels` with k = 2."""
    return _deal_labels(labels, clients, seed, 2, "two_labels")


def _k_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has k classes; k = 2 is close to the "pathological" partition of McMahan et al. (2017)."""
    return _deal_labels(labels, clients, seed, how.labels_per_client, "k_labels")


def _deal_labels(labels: Array, clients: int, seed: int, k: int, scheme: str) -> Array:
    """Return the client of every sample, (M,), when every client has k classes.

    Each client takes the next k different classes from a shuffled list of all classes; further shuffled lists are
    appended as needed. The numbers of clients of two classes therefore differ by at most one. The samples of a class
    are distributed evenly among its clients (± 1). Raises InputError for fewer than k classes, or if fewer than K / k
    clients would leave a class without a client.
    """
    classes = np.unique(labels)
    if len(classes) < k or k * clients < len(classes):
        raise InputError(
            f"{scheme} cannot share {plural(len(classes), 'class')} out among {plural(clients, 'client')}: it needs at"
            f" least {plural(k, 'class')} and {plural(math.ceil(len(classes) / k), 'client')}. Change `clients`, or the"
            " number of classes with private.classes, or choose another partition.scheme, such as dirichlet."
        )
    draw, deck = stream(seed, "partition", scheme), list[int]()
    hands: list[list[int]] = [[] for _ in range(clients)]
    for hand in hands:
        while len(hand) < k:
            if all(card in hand for card in deck):  # the list has no class that the client lacks
                deck.extend(draw.permutation(classes).tolist())
            hand.append(deck.pop(next(place for place, card in enumerate(deck) if card not in hand)))

    owner = np.empty(len(labels), dtype=np.int64)
    for label in classes:
        mine = np.flatnonzero([label in hand for hand in hands])
        place = stream(seed, "partition", scheme, int(label)).permutation(np.flatnonzero(labels == label))
        owner[place] = mine[np.arange(len(place)) % len(mine)]
    return owner


def _dirichlet(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every class is distributed by proportions drawn from Dirichlet(alpha, ..., alpha) (Yurochkin et al. 2019).

    The whole partition is drawn until every client has `minimum` samples, at most `MAX_DRAWS` times.
    """
    alpha = how.alpha
    if how.balanced:
        return _balanced(labels, clients, seed, alpha)
    concentration = np.full(clients, alpha)
    for attempt in range(MAX_DRAWS):
        owner = _deal_classes(
            labels, lambda size, draw: _portions(draw.dirichlet(concentration), size), seed, "dirichlet", attempt
        )
        if np.bincount(owner, minlength=clients).min() >= how.minimum:
            return owner
    raise InputError(
        f"dirichlet with alpha {alpha} leaves some of {clients} clients with fewer than {how.minimum} of the"
        f" {len(labels):,} samples, in each of {MAX_DRAWS} draws: raise alpha, lower clients, or set balanced to true."
    )


def _balanced(labels: Array, clients: int, seed: int, alpha: float) -> Array:
    """Return the client of every sample, (M,), when all clients have the same number of samples (± 1).

    A client's proportions come from Dirichlet(alpha · K · p), where p are the proportions of the whole dataset (Hsu et
    al., 2019). The α of Hsu et al. is K · alpha; alpha equals the α of `dirichlet` if all classes have the same size.
    In turn, each client draws the class of one sample. A class without remaining samples is removed from all
    proportions.
    """
    classes, places = np.unique(labels, return_inverse=True)
    left = np.bincount(places)
    draw = stream(seed, "partition", "dirichlet", "balanced")
    wanted = draw.dirichlet(alpha * len(classes) * left / len(labels), size=clients)
    order, picks = draw.permutation(clients), draw.random(len(labels))
    pools = [draw.permutation(np.flatnonzero(places == place)).tolist() for place in range(len(classes))]
    owner = np.empty(len(labels), dtype=np.int64)
    for turn, pick in enumerate(picks):
        client = order[turn % clients]
        chances = np.cumsum(wanted[client] * (left > 0))
        if chances[-1] < 1e-9:  # no samples remain of the client's classes
            chances = np.cumsum(left)
        place = min(int(np.searchsorted(chances, pick * chances[-1], side="right")), len(classes) - 1)
        if not left[place]:  # possible by rounding
            place = int(left.argmax())
        owner[pools[place].pop()] = client
        left[place] -= 1
    return owner


def _shards(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Samples sorted by class are divided into shards of equal size (± 1), assigned in equal numbers (McMahan 2017).

    A shard may contain samples of consecutive classes, so a client has about as many classes as shards.
    """
    shards = how.shards_per_client
    if (total := clients * shards) > len(labels):
        raise InputError(
            f"shards_per_client {shards} makes {plural(total, 'shard')} for {plural(clients, 'client')}, of"
            f" {plural(len(labels), 'sample')}: lower shards_per_client or clients."
        )
    draw = stream(seed, "partition", "shards")
    by_class = np.lexsort((draw.permutation(len(labels)), labels))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[by_class] = (draw.permutation(total) // shards)[np.arange(len(labels)) * total // len(labels)]
    return owner


def _quantity(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Clients differ in their number of samples but not in their label distribution (Li et al. 2022, NIID-Bench).

    Every client first gets `minimum` samples. The others are distributed by Dirichlet(alpha, ..., alpha) proportions.
    """
    draw, spare = stream(seed, "partition", "quantity"), len(labels) - clients * how.minimum
    if spare < 0:
        raise InputError(
            f"{len(labels):,} samples are too few for {plural(clients, 'client')} with {how.minimum:,} each: lower"
            " clients or partition.minimum."
        )
    sizes = how.minimum + _portions(draw.dirichlet(np.full(clients, how.alpha)), spare)
    return draw.permutation(np.repeat(np.arange(clients), sizes))


def _deal_classes(
    labels: Array, counts: Callable[[int, np.random.Generator], Array], seed: int, *names: int | str
) -> Array:
    """Return the client of every sample, (M,). For each class, `counts(size, generator)` gives the numbers, (N,)."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        draw = stream(seed, "partition", *names, int(label))
        place = draw.permutation(np.flatnonzero(labels == label))
        amounts = counts(len(place), draw)
        owner[place] = np.repeat(np.arange(len(amounts)), amounts)
    return owner


def _portions(proportions: NDArray[np.float64], total: int) -> Array:
    bounds = np.rint(np.cumsum(proportions) * total).astype(np.int64)
    return np.diff(bounds, prepend=0)


SCHEMES: dict[str, Scheme] = {
    "iid": _iid,
    "all_labels": _all_labels,  # Non-IID_1
    "two_labels": _two_labels,  # Non-IID_2
    "lognormal": _lognormal,
    "k_labels": _k_labels,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "quantity": _quantity,
}
"""The functions of the schemes that `data.registry.SCHEMES` names."""
