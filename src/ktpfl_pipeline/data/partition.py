"""Who gets which samples: the ways to share a dataset out among the clients of a federation.

KT-pFL section 5.1 shares the data out in two ways and contradicts itself about which is which; we name them after what
they do. By its Table 1 and figure captions `all_labels` is its Non-IID_1 and `two_labels` its Non-IID_2.

`SCHEMES` is the registry. Legend: N clients, M samples, K classes.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError, unknown
from ktpfl_pipeline.core.rng import derive

MAX_DRAWS = 100  # how often `dirichlet` is drawn anew before it gives up
MAX_ALPHA = 1e6  # by then every client has the same distribution; far above, the sampler overflows

Array = NDArray[np.int64]


class Skew(NamedTuple):
    """What a scheme is told beside the number of clients.

    Attributes:
        alpha: of `dirichlet`.
        labels: of `k_labels`.
        enough: a client with so many samples can surely be split.
    """

    alpha: float
    labels: int
    enough: int


Scheme = Callable[[Array, int, int, Skew], Array]
"""``scheme(labels, clients, seed, skew)`` returns the owner of every sample, (M,): each has one owner."""


class ClientIndices(NamedTuple):
    """The samples of one client, as ascending indices into the dataset, int64.

    Attributes:
        train: (n,), to train on.
        validation: (n,), to choose hyperparameters on; empty when the validation share is 0.
        test: (n,), to report accuracy on.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def partition(
    labels: Tensor,
    clients: int,
    scheme: str,
    seed: int,
    *,
    alpha: float = 0.5,
    labels_per_client: int = 2,
    test_share: float = 0.25,
    validation_share: float = 0.1,
    pool: Tensor | None = None,
) -> dict[int, ClientIndices]:
    """Share the samples out among the clients, and split each client's share into train, validation and test.

    Every sample of the pool goes to exactly one split of one client. Within a client the splits are stratified: each
    has the client's own label distribution, up to rounding (KT-pFL section 5.1: 75 % train, 25 % test). Validation
    samples, which the paper does not have, are taken from the training part.

    Args:
        labels: (M,), class numbers of the dataset.
        clients: N, how many clients.
        scheme: a name of `SCHEMES`.
        seed: the run's seed; the split of a client depends on it, the client's number and the client's samples alone.
        alpha: concentration of `dirichlet`: small values give few classes per client, large ones nearly IID data.
        labels_per_client: k of `k_labels`.
        test_share: the part of a client's samples to test on, rounded up, in (0, 1).
        validation_share: the part of what remains to validate on, rounded, at least one sample; 0 for none.
        pool: (n,), indices of the samples to share out, each once; None for all.

    Returns:
        {client: indices into the dataset} for the clients 0 to N - 1, each with at least two training samples, one
        test sample and, unless the validation share is 0, one validation sample.

    Raises:
        InputError: an unknown scheme, a number out of range, or too few samples for so many clients.
    """
    if scheme not in SCHEMES:
        raise unknown("partition scheme", scheme, SCHEMES)
    if clients < 1:
        raise InputError(f"a federation of {clients} clients is not possible: choose 1 client or more.")
    if not 0 < test_share < 1:
        raise InputError(f"test_share {test_share} must lie between 0 and 1, both excluded, such as 0.25.")
    if not 0 <= validation_share < 1:
        raise InputError(f"validation_share {validation_share} must be 0 (none) or less than 1, such as 0.1.")
    if not 0 < alpha <= MAX_ALPHA:
        raise InputError(f"alpha {alpha} must be above 0 and at most {MAX_ALPHA:,.0f}, such as 0.5.")

    indices = np.arange(len(labels)) if pool is None else pool.numpy()
    if len(np.unique(indices)) < len(indices):
        raise ValueError("the pool names a sample twice")
    known, shares = labels.numpy(), dict[int, Array]()
    if _fits(len(indices) // clients, test_share, validation_share):  # some client gets at most so many
        enough = _enough(test_share, validation_share, limit=len(indices))
        owner = SCHEMES[scheme](known[indices], clients, seed, Skew(alpha, labels_per_client, enough))
        shares = {client: np.sort(indices[owner == client]) for client in range(clients)}
    if not shares or not all(_fits(len(share), test_share, validation_share) for share in shares.values()):
        least = f"2 to train on, {'1 to validate on, ' if validation_share else ''}and 1 to test on"
        raise InputError(
            f"{len(indices):,} samples are too few for {clients:,} clients under {scheme}: each client needs at least"
            f" {least}. Lower clients or test_share, or take a source with more samples."
        )
    return {
        client: _split(share, known[share], test_share, validation_share, _rng(seed, "split", client))
        for client, share in shares.items()
    }


def label_counts(labels: Tensor, indices: dict[int, ClientIndices], classes: int) -> Tensor:
    """Return how many samples of each class each client has, all splits together, (N, K) int64, in order of client.

    Args:
        labels: (M,) of all samples.
        indices: by client, its samples.
        classes: K.
    """
    return torch.stack([torch.bincount(labels[torch.cat(indices[n])], minlength=classes) for n in sorted(indices)])


def label_similarity(counts: Tensor) -> Tensor:
    """Return the cosine similarity of the clients' label distributions, (N, N) float64 in [0, 1], of (N, K) counts."""
    directions = torch.nn.functional.normalize(counts.double(), dim=1)
    return (directions @ directions.T).clamp(0, 1)


def draw_stratified(labels: Array, total: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which samples a random draw of `total` takes, (M,) bool, with the label distribution of all.

    Each class gives its proportional number, rounded by largest remainders; equal remainders are settled by lot.

    Args:
        labels: (M,) of all samples.
        total: how many to take.
        rng: of the draw.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(counts * total, max(len(labels), 1))
    by_remainder = np.lexsort((rng.permutation(len(counts)), -remainder))
    quota[by_remainder[: total - quota.sum()]] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(classes[order], kind="stable")]  # class by class, shuffled within
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.zeros(len(labels), dtype=np.bool_)
    taken[order] = rank < np.repeat(quota, counts)
    return taken


def _iid(labels: Array, clients: int, seed: int, skew: Skew) -> Array:
    """Every client draws from the same distribution: the shuffled samples are dealt out in equal numbers (± 1)."""
    owner = np.empty(len(labels), dtype=np.int64)
    owner[_rng(seed, "partition", "iid").permutation(len(labels))] = np.arange(len(labels)) % clients
    return owner


def _all_labels(labels: Array, clients: int, seed: int, skew: Skew) -> Array:
    """Every client has every class, in different amounts (KT-pFL's Non-IID_1 by Table 1).

    The paper does not say how different. Here each client first gets a floor of every class: `enough` samples for one
    to be trained and one to be tested on, where the class has that many for all, else a single one (none where a class
    has fewer samples than there are clients). The rest of the class goes by proportions drawn uniformly from all
    possible ones, Dirichlet(1, ..., 1), anew for each class.
    """

    def counts(size: int, rng: np.random.Generator) -> Array:
        floor = skew.enough if size >= clients * skew.enough else int(size >= clients)
        return floor + _portions(rng.dirichlet(np.ones(clients)), size - clients * floor)

    return _deal_classes(labels, counts, seed, "all_labels")


def _two_labels(labels: Array, clients: int, seed: int, skew: Skew) -> Array:
    """Every client has two classes (KT-pFL's Non-IID_2 by Table 1): `k_labels` with k = 2."""
    return _deal_labels(labels, clients, seed, 2, "two_labels")


def _k_labels(labels: Array, clients: int, seed: int, skew: Skew) -> Array:
    """Every client has k classes, the "pathological" partition of McMahan et al. (2017) with k for its two."""
    return _deal_labels(labels, clients, seed, skew.labels, "k_labels")


def _deal_labels(labels: Array, clients: int, seed: int, k: int, scheme: str) -> Array:
    """Return the owners where classes are dealt like cards.

    From a shuffled deck of all classes each client takes the next k that differ; an empty deck is followed by a freshly
    shuffled one. So the numbers of owners of any two classes differ by one at most (20 clients, 10 classes, k = 2: four
    owners each). A class is shared out evenly among its owners (± 1). With fewer than K / k clients some classes would
    have no owner and their samples would be lost, so that is refused.
    """
    classes = np.unique(labels)
    if len(classes) < k or k * clients < len(classes):
        raise InputError(
            f"{scheme} cannot share {len(classes)} classes out among {clients} clients: it needs {k} classes or more"
            f" and at least {math.ceil(len(classes) / k)} clients; change `clients`, or keep fewer or more classes with"
            " `classes`."
        )
    rng, deck = _rng(seed, "partition", scheme), list[int]()
    hands: list[list[int]] = [[] for _ in range(clients)]
    for hand in hands:
        while len(hand) < k:
            if all(card in hand for card in deck):  # it waits for a card that this deck no longer has
                deck.extend(rng.permutation(classes).tolist())
            hand.append(deck.pop(next(place for place, card in enumerate(deck) if card not in hand)))

    owner = np.empty(len(labels), dtype=np.int64)
    for label in classes:
        mine = np.flatnonzero([label in hand for hand in hands])
        place = _rng(seed, "partition", scheme, int(label)).permutation(np.flatnonzero(labels == label))
        owner[place] = mine[np.arange(len(place)) % len(mine)]
    return owner


def _dirichlet(labels: Array, clients: int, seed: int, skew: Skew) -> Array:
    """Every class goes to the clients by proportions drawn from Dirichlet(alpha, ..., alpha) (Hsu et al. 2019).

    The whole partition is drawn anew until every client has `enough` samples, at most `MAX_DRAWS` times.
    """
    concentration = np.full(clients, skew.alpha)
    for attempt in range(MAX_DRAWS):
        owner = _deal_classes(
            labels, lambda size, rng: _portions(rng.dirichlet(concentration), size), seed, "dirichlet", attempt
        )
        if np.bincount(owner, minlength=clients).min() >= skew.enough:
            return owner
    raise InputError(
        f"dirichlet with alpha {skew.alpha} leaves some of {clients} clients with fewer than {skew.enough} of the"
        f" {len(labels):,} samples, in each of {MAX_DRAWS} draws: raise alpha or lower clients."
    )


def _deal_classes(
    labels: Array, counts: Callable[[int, np.random.Generator], Array], seed: int, *names: int | str
) -> Array:
    """Return the owners when `counts(size of the class, its stream)` says how many samples each client gets, (N,)."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rng = _rng(seed, "partition", *names, int(label))
        place = rng.permutation(np.flatnonzero(labels == label))
        amounts = counts(len(place), rng)
        owner[place] = np.repeat(np.arange(len(amounts)), amounts)
    return owner


def _portions(proportions: NDArray[np.float64], total: int) -> Array:
    """Return whole numbers near `proportions` x `total` that add up to `total`."""
    bounds = np.rint(np.cumsum(proportions) * total).astype(np.int64)
    return np.diff(bounds, prepend=0)


SCHEMES: dict[str, Scheme] = {
    "iid": _iid,
    "all_labels": _all_labels,  # Non-IID_1
    "two_labels": _two_labels,  # Non-IID_2
    "k_labels": _k_labels,
    "dirichlet": _dirichlet,
}


def _split(
    mine: Array, labels: Array, test_share: float, validation_share: float, rng: np.random.Generator
) -> ClientIndices:
    """Split the samples `mine` with their `labels`, both (n,), stratified by class."""
    _, validation_size, test_size = _sizes(len(mine), test_share, validation_share)
    test = draw_stratified(labels, test_size, rng)
    rest, rest_labels = mine[~test], labels[~test]
    validation = draw_stratified(rest_labels, validation_size, rng)
    return ClientIndices(*(torch.from_numpy(part) for part in (rest[~validation], rest[validation], mine[test])))


def _sizes(samples: int, test_share: float, validation_share: float) -> tuple[int, int, int]:
    """Return how many of a client's samples are for training, validation and test."""
    test = math.ceil(samples * test_share - 1e-9)  # 0.07 x 100 is 7.000000000000001
    validation = max(1, round((samples - test) * validation_share)) if validation_share else 0
    return samples - test - validation, validation, test


def _fits(samples: int, test_share: float, validation_share: float) -> bool:
    """Return whether two samples to train on remain, and one to test on."""
    train, _, test = _sizes(samples, test_share, validation_share)
    return train >= 2 and test >= 1


def _enough(test_share: float, validation_share: float, limit: int) -> int:
    """Return the least number of samples that can surely be split, be they a client's all or those of one class.

    Of a class with that many, one sample at least is tested on (its quota is one or more), and one trained on, even
    if largest remainders round both other quotas up. Four with the default shares; `limit` if no number below will do.
    """

    def holds(samples: int) -> bool:
        rest = samples - math.floor(samples * test_share + 0.5) - 1
        train = rest - (math.floor(rest * validation_share + 0.5) + 1 if validation_share else 0)
        return train >= 1 and samples * test_share >= 1 and _fits(samples, test_share, validation_share)

    return bisect_left(range(limit), True, key=holds)  # once it holds, it holds for all larger numbers


def _rng(seed: int, purpose: str, *names: int | str) -> np.random.Generator:
    return np.random.default_rng(derive(seed, purpose, *names))
