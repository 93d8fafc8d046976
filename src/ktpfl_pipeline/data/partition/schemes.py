"""Which client gets which samples, from the labels only: the ways to share a dataset out among clients.

KT-pFL section 5.1 shares the data out in two ways and contradicts itself about which is which; we name them after what
they do. By its Table 1 and figure captions `all_labels` is its Non-IID_1 and `two_labels` its Non-IID_2.

`SCHEMES` is the registry. Legend: N clients, M samples, K classes.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ktpfl_pipeline.core.errors import InputError, plural
from ktpfl_pipeline.data.partition.split import Array, stream
from ktpfl_pipeline.data.settings import Partition

MAX_DRAWS = 100  # how often `dirichlet` is drawn again before it gives up


Scheme = Callable[[Array, int, int, Partition, int], Array]
"""``scheme(labels, clients, seed, how, enough)`` returns the owner of every sample, (M,): each has one owner.

`how` has the settings, of which a scheme reads its own. A client with `enough` samples can always be split; the minimum
of `how` is not below.
"""


def _iid(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client draws from the same distribution: the shuffled samples are dealt out in equal numbers (± 1)."""
    owner = np.empty(len(labels), dtype=np.int64)
    owner[stream(seed, "partition", "iid").permutation(len(labels))] = np.arange(len(labels)) % clients
    return owner


def _all_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has every class, in different amounts (KT-pFL's Non-IID_1 by Table 1).

    The paper does not say how different. Here each client first gets a floor of every class: `enough` samples for one
    to be trained and one to be tested on, where the class has that many for all, else a single one (none where a class
    has fewer samples than there are clients). The rest of the class goes by proportions drawn uniformly from all
    possible ones, Dirichlet(1, ..., 1), drawn again for each class.
    """
    counts = _above_a_floor(clients, enough, lambda draw: draw.dirichlet(np.ones(clients)))
    return _deal_classes(labels, counts, seed, "all_labels")


def _lognormal(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has every class, in amounts proportional to lognormal(0, sigma) draws, one per client and class.

    KT-pFL's released code partitions its experiments with one architecture this way, with sigma 2, as the code of
    pFedMe (Dinh et al., NeurIPS 2020) does. Both give every client a few samples of each class first; here that floor
    is the one of `all_labels`. Unlike both, every sample has an owner, and no uniform draw is added to the amounts.
    """

    def proportions(draw: np.random.Generator) -> NDArray[np.float64]:
        weights = draw.lognormal(0.0, how.sigma, clients)
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares

    return _deal_classes(labels, _above_a_floor(clients, enough, proportions), seed, "lognormal")


def _above_a_floor(
    clients: int, enough: int, proportions: Callable[[np.random.Generator], NDArray[np.float64]]
) -> Callable[[int, np.random.Generator], Array]:
    """Return `counts` for `_deal_classes`: a floor for every client, and the rest of the class by proportions.

    The floor is `enough` samples where the class has that many for all clients, else one sample, else none.
    """

    def counts(size: int, draw: np.random.Generator) -> Array:
        floor = enough if size >= clients * enough else int(size >= clients)
        return floor + _portions(proportions(draw), size - clients * floor)

    return counts


def _two_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has two classes (KT-pFL's Non-IID_2 by Table 1): `k_labels` with k = 2."""
    return _deal_labels(labels, clients, seed, 2, "two_labels")


def _k_labels(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every client has k classes, the "pathological" partition of McMahan et al. (2017) with k for its two."""
    return _deal_labels(labels, clients, seed, how.labels_per_client, "k_labels")


def _deal_labels(labels: Array, clients: int, seed: int, k: int, scheme: str) -> Array:
    """Return the owners where classes are dealt like cards.

    From a shuffled deck of all classes each client takes the next k that differ; an empty deck is followed by a freshly
    shuffled one. So the numbers of owners of any two classes differ by at most one (20 clients, 10 classes, k = 2: four
    owners each). A class is shared out evenly among its owners (± 1). With fewer than K / k clients some classes would
    have no owner and their samples would be lost, so that is refused.
    """
    classes = np.unique(labels)
    if len(classes) < k or k * clients < len(classes):
        raise InputError(
            f"{scheme} cannot share {plural(len(classes), 'class')} out among {plural(clients, 'client')}: it needs at"
            f" least {plural(k, 'class')} and {plural(math.ceil(len(classes) / k), 'client')}. Change `clients`, or the"
            " number of classes with `classes`."
        )
    draw, deck = stream(seed, "partition", scheme), list[int]()
    hands: list[list[int]] = [[] for _ in range(clients)]
    for hand in hands:
        while len(hand) < k:
            if all(card in hand for card in deck):  # it waits for a card that this deck no longer has
                deck.extend(draw.permutation(classes).tolist())
            hand.append(deck.pop(next(place for place, card in enumerate(deck) if card not in hand)))

    owner = np.empty(len(labels), dtype=np.int64)
    for label in classes:
        mine = np.flatnonzero([label in hand for hand in hands])
        place = stream(seed, "partition", scheme, int(label)).permutation(np.flatnonzero(labels == label))
        owner[place] = mine[np.arange(len(place)) % len(mine)]
    return owner


def _dirichlet(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """Every class goes to the clients by proportions drawn from Dirichlet(alpha, ..., alpha) (Yurochkin et al. 2019).

    The whole partition is drawn again until every client has `minimum` samples, at most `MAX_DRAWS` times.
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
    """Return each sample's client; all clients get the same number of samples (± 1), in different class proportions.

    A client's proportions come from Dirichlet(alpha · K · p), where p are the proportions of the whole dataset (Hsu et
    al., 2019). Their α is K times ours, so that ours equals the α of `dirichlet` if all classes have the same size. The
    clients take turns and draw the class of one sample each. A class without samples left is removed from all
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
        if chances[-1] < 1e-9:  # nothing that it wants is left
            chances = np.cumsum(left)
        place = min(int(np.searchsorted(chances, pick * chances[-1], side="right")), len(classes) - 1)
        if not left[place]:  # rounding
            place = int(left.argmax())
        owner[pools[place].pop()] = client
        left[place] -= 1
    return owner


def _shards(labels: Array, clients: int, seed: int, how: Partition, enough: int) -> Array:
    """The samples, sorted by class, are cut into equal shards (± 1) of which every client gets as many (McMahan 2017).

    A shard lies within one class or reaches over into the next, so a client has about as many classes as shards.
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
    """Clients differ in how many samples they have, and not in their labels (Li et al. 2022, NIID-Bench).

    Every client first gets `minimum` samples; the others go by proportions drawn from Dirichlet(alpha, ..., alpha).
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
    """Return the owners when `counts(size of the class, its stream)` says how many samples each client gets, (N,)."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        draw = stream(seed, "partition", *names, int(label))
        place = draw.permutation(np.flatnonzero(labels == label))
        amounts = counts(len(place), draw)
        owner[place] = np.repeat(np.arange(len(amounts)), amounts)
    return owner


def _portions(proportions: NDArray[np.float64], total: int) -> Array:
    """Return integers near `proportions` x `total` that add up to `total`."""
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
