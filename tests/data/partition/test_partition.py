import math
import re

import numpy as np
import pytest
import torch
from cases import case

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.partition import (
    SCHEMES,
    ClientIndices,
    draw_stratified,
    label_counts,
    label_similarity,
    partition,
    schemes,
)


def make_labels(samples: int, classes: int, seed: int = 0, skew: float = 0.0) -> torch.Tensor:
    """Shuffled labels; with `skew`, low classes are more frequent."""
    weights = np.exp(-skew * np.arange(classes))
    return torch.from_numpy(np.random.default_rng(seed).choice(classes, samples, p=weights / weights.sum()))


def splits(own: ClientIndices) -> list[torch.Tensor]:
    return [own.train, own.validation, own.test]


def everything(parts: dict[int, ClientIndices]) -> torch.Tensor:
    return torch.cat([split for own in parts.values() for split in splits(own)])


CASES = [  # clients, samples, classes, skew, (test share, validation share)
    (1, 40, 2, 0.0, (0.25, 0.1)),
    (3, 200, 5, 0.5, (0.25, 0.0)),
    (5, 1000, 10, 0.0, (0.4, 0.3)),
    (7, 900, 3, 1.0, (0.25, 0.1)),
    (20, 1797, 10, 0.0, (0.25, 0.1)),
    (100, 5000, 10, 0.2, (0.4, 0.3)),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_sample_goes_to_one_split_of_one_client(scheme):
    for sizes in CASES:
        with case(*sizes):
            check_splits(scheme, *sizes)


def check_splits(scheme, clients, samples, classes, skew, shares):
    labels = make_labels(samples, classes, skew=skew)
    pool = torch.from_numpy(np.random.default_rng(0).permutation(samples)[: samples - samples // 10])
    test_share, validation_share = shares
    parts = partition(
        labels, clients, scheme, 0, alpha=1.0, test_share=test_share, validation_share=validation_share, pool=pool
    )
    assert list(parts) == list(range(clients))
    used = everything(parts)
    assert used.dtype == torch.int64
    assert torch.equal(used.sort().values, pool.sort().values)  # all of the pool, each sample once, nothing else
    for own in parts.values():
        total = sum(len(split) for split in splits(own))
        assert len(own.train) >= 2
        assert len(own.test) == math.ceil(round(total * test_share, 6))
        assert len(own.validation) == (
            max(1, round((total - len(own.test)) * validation_share)) if validation_share else 0
        )
        assert all(torch.equal(split, split.sort().values) for split in splits(own))
        counts = torch.bincount(labels[torch.cat(splits(own))], minlength=classes)
        quota = counts * len(own.test) / total
        tested = torch.bincount(labels[own.test], minlength=classes)
        assert (tested - quota).abs().max() < 1  # the client's own label distribution, up to rounding


def test_the_seed_decides():
    for scheme in SCHEMES:
        with case(scheme):
            labels = make_labels(600, 6)
            first, again, other = (everything(partition(labels, 5, scheme, seed)) for seed in (3, 3, 4))
            assert torch.equal(first, again)
            assert not torch.equal(first, other)


def test_no_global_generator_is_used_or_moved():
    labels = make_labels(300, 4)
    first = everything(partition(labels, 4, "dirichlet", 0))
    np.random.seed(1)
    torch.manual_seed(1)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy())
    assert torch.equal(everything(partition(labels, 4, "dirichlet", 0)), first)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_the_split_of_a_client_depends_only_on_its_samples(monkeypatch):
    labels = make_labels(200, 4)
    fixed = np.arange(200) % 3
    for name, owner in (("here", fixed), ("swapped", np.where(fixed == 0, 0, 3 - fixed))):  # clients 1 and 2 swap
        monkeypatch.setitem(SCHEMES, name, lambda *_, owner=owner: owner)
    here, swapped = (partition(labels, 3, name, 0) for name in ("here", "swapped"))
    assert torch.equal(here[0].test, swapped[0].test)
    assert torch.equal(torch.cat(splits(here[1])).sort().values, torch.cat(splits(swapped[2])).sort().values)
    assert not torch.equal(here[1].test, swapped[2].test)  # the same samples, another client's stream


def test_the_arguments_are_left_as_they_were():
    labels, pool = make_labels(100, 2), torch.arange(99, -1, -1)
    before = labels.clone(), pool.clone()
    partition(labels, 3, "all_labels", 0, pool=pool)
    assert torch.equal(labels, before[0])
    assert torch.equal(pool, before[1])


# -------------------------------------------------------------------------------------------------------------- schemes


def test_iid_is_even_and_mixed():
    labels = make_labels(4003, 10)
    counts = label_counts(labels, partition(labels, 20, "iid", 0), 10)
    assert sorted(set(counts.sum(dim=1).tolist())) == [200, 201]
    assert counts.min() > 5  # of about 20
    assert label_similarity(counts).mean() > 0.9


@pytest.mark.parametrize(("seed", "shares"), [(0, (0.25, 0.1)), (1, (0.1, 0.1)), (0, (0.5, 0.5)), (1, (0.25, 0.0))])
def test_all_labels_trains_and_tests_every_class_at_every_client(seed, shares):
    labels = make_labels(4000, 10, seed)
    parts = partition(labels, 20, "all_labels", seed, test_share=shares[0], validation_share=shares[1])
    for own in parts.values():
        assert torch.bincount(labels[own.train], minlength=10).min() >= 1
        assert torch.bincount(labels[own.test], minlength=10).min() >= 1
    counts = label_counts(labels, parts, 10)
    assert all(len(set(column)) > 1 for column in counts.T.tolist())  # in different amounts
    assert (counts.max(dim=0).values > 2 * counts.min(dim=0).values).all()


def test_lognormal_gives_every_class_to_every_client_in_amounts_as_different_as_sigma_says():
    """Amounts above the floor are proportional to lognormal(0, σ): their logarithms have a standard deviation of σ."""
    labels = make_labels(200_000, 10)
    for sigma in (0.5, 1.0, 2.0):
        with case(sigma):
            counts = label_counts(labels, partition(labels, 20, "lognormal", 0, sigma=sigma), 10).double()
            assert int(counts.sum()) == len(labels)
            assert counts.min() >= 4  # enough to train and to test on
            logarithms = (counts - 4).clamp_min(1).log()
            assert float((logarithms - logarithms.mean(dim=0)).std()) == pytest.approx(sigma, rel=0.15)


def test_lognormal_draws_again_for_each_seed_and_class():
    labels = make_labels(5000, 4)
    first, second = (label_counts(labels, partition(labels, 20, "lognormal", seed), 4) for seed in (0, 1))
    assert not first.equal(second)
    assert not first[:, 0].argsort().equal(first[:, 1].argsort())


def test_all_labels_gives_a_class_of_just_enough_samples_out_evenly():
    """Four samples can be trained and tested on with the default shares."""
    labels = torch.cat([torch.zeros(40), torch.ones(200)]).long()
    counts = label_counts(labels, partition(labels, 10, "all_labels", 0), 2)
    assert counts[:, 0].tolist() == [4] * 10


def test_all_labels_gives_one_of_a_class_that_is_too_rare_to_test():
    labels = torch.tensor([0] * 200 + [1] * 12 + [2] * 5)
    counts = label_counts(labels, partition(labels, 10, "all_labels", 0), 3)
    assert counts[:, 0].min() >= 4
    assert counts[:, 1].min() == 1
    assert counts[:, 2].sum() == 5  # fewer than clients: shared out as far as they go


def test_every_client_gets_k_labels_and_classes_are_shared_evenly():
    for clients, classes, k in (
        *((20, 10, 2), (5, 10, 2), (1, 2, 2), (7, 2, 2), (13, 7, 2), (20, 9, 2), (3, 5, 2)),
        *((20, 10, 3), (4, 3, 3), (13, 7, 4), (12, 10, 4), (3, 5, 5), (2, 2, 1)),
    ):
        with case(clients, classes, k):
            labels = make_labels(200 * classes, classes)
            counts = label_counts(labels, partition(labels, clients, "k_labels", 0, labels_per_client=k), classes)
            assert ((counts > 0).sum(dim=1) == k).all()
            owners = (counts > 0).sum(dim=0)
            assert owners.max() - owners.min() <= 1
            assert owners.min() >= 1
            for column in counts.T:
                assert column[column > 0].max() - column[column > 0].min() <= 1
            if (clients, classes, k) == (20, 10, 2):
                assert (owners == 4).all()


def test_two_labels_are_k_labels_with_draws_of_their_own():
    labels = make_labels(2000, 10)
    counts = label_counts(labels, partition(labels, 20, "two_labels", 0, labels_per_client=5), 10)
    assert ((counts > 0).sum(dim=1) == 2).all()


def test_two_labels_varies_the_pairs():
    labels = make_labels(2000, 10)
    counts = label_counts(labels, partition(labels, 20, "two_labels", 0), 10)
    pairs = {tuple(row.nonzero().flatten().tolist()) for row in counts}
    assert len(pairs) > 5  # always the same five pairs would be five


def test_dirichlet_is_skewed_by_a_small_alpha_and_even_with_a_large_one():
    labels = make_labels(20_000, 10)
    similarity = {
        alpha: label_similarity(label_counts(labels, partition(labels, 10, "dirichlet", 0, alpha=alpha), 10))
        for alpha in (0.1, 1.0, 1e6)
    }
    means = [float(matrix.mean()) for matrix in similarity.values()]
    assert means == sorted(means)
    assert means[0] < 0.5
    assert similarity[1e6].min() > 0.999


def test_balanced_dirichlet_is_even_and_as_skewed_as_alpha_says():
    for alpha in (0.05, 1.0, 1e6):
        with case(alpha):
            labels = make_labels(4003, 10, skew=0.1)
            counts = label_counts(labels, partition(labels, 20, "dirichlet", 0, alpha=alpha, balanced=True), 10)
            assert sorted(set(counts.sum(dim=1).tolist())) == [200, 201]
            similarity = float(label_similarity(counts).mean())
            assert {0.05: similarity < 0.35, 1.0: 0.4 < similarity < 0.8, 1e6: similarity > 0.95}[alpha]


def test_clients_of_dirichlet_have_the_minimum():
    labels = make_labels(2000, 10)
    for scheme in ("dirichlet", "quantity"):
        counts = label_counts(labels, partition(labels, 10, scheme, 0, alpha=0.3, minimum=100), 10).sum(dim=1)
        assert counts.min() >= 100
        assert counts.max() > 2 * counts.min()


def test_a_client_has_equal_shards_of_few_classes():
    for clients, shards in ((20, 2), (7, 3), (10, 10)):
        with case(clients, shards):
            labels = make_labels(4000, 10)
            counts = label_counts(labels, partition(labels, clients, "shards", 0, shards_per_client=shards), 10)
            assert counts.sum(dim=1).max() - counts.sum(dim=1).min() <= shards
            assert (counts > 0).sum(dim=1).max() <= 2 * shards  # a shard reaches over one border at most
            if (clients, shards) == (20, 2):
                assert (counts > 0).sum(dim=1).double().mean() < 3.2


def test_shards_of_equal_classes_lie_within_one():
    labels = torch.arange(1000) % 10
    counts = label_counts(labels, partition(labels, 20, "shards", 0, shards_per_client=2), 10)
    assert set(counts.flatten().tolist()) <= {0, 25, 50}
    assert (counts.sum(dim=1) == 50).all()


def test_quantity_skews_sizes_and_not_labels():
    labels = make_labels(20_000, 5)
    counts = label_counts(labels, partition(labels, 10, "quantity", 0, alpha=0.5, minimum=300), 5)
    assert counts.sum(dim=1).max() > 5 * counts.sum(dim=1).min()
    assert label_similarity(counts).min() > 0.97
    even = label_counts(labels, partition(labels, 10, "quantity", 0, alpha=1e6), 5).sum(dim=1)
    assert even.min() > 1950


def test_dirichlet_is_drawn_until_every_client_has_enough(monkeypatch):
    labels = make_labels(300, 3)
    for seed in range(20):
        parts = partition(labels, 10, "dirichlet", seed, alpha=0.3)
        assert min(sum(len(split) for split in splits(own)) for own in parts.values()) >= 4
    monkeypatch.setattr(schemes, "MAX_DRAWS", 1)
    with pytest.raises(InputError, match="in each of 1 draws"):  # one draw would not have done for all of these seeds
        for seed in range(20):
            partition(labels, 10, "dirichlet", seed, alpha=0.3)


# ------------------------------------------------------------------------------------------------------- stratification


def test_stratified_draw_by_hand():
    labels = np.array([0] * 8 + [1] * 4 + [2] * 1)
    for seed in range(10):
        taken = draw_stratified(labels, 3, np.random.default_rng(seed))
        # quotas 24/13, 12/13, 3/13: 1, 0, 0 and remainders 11, 12, 3 of 13, so two, one and none
        assert np.bincount(labels[taken], minlength=3).tolist() == [2, 1, 0]


def test_equal_remainders_are_drawn_at_random():
    labels = np.array([0, 0, 1, 1, 2, 2])
    winners = {int(labels[draw_stratified(labels, 1, np.random.default_rng(seed))][0]) for seed in range(40)}
    assert winners == {0, 1, 2}


def test_stratified_draw_takes_the_number_asked_for():
    for total in (0, 1, 5, 12, 13):
        with case(total):
            labels = np.array([9] * 8 + [1] * 4 + [40])
            assert draw_stratified(labels, total, np.random.default_rng(0)).sum() == total


def test_every_sample_of_a_class_may_be_drawn():
    labels = np.zeros(10, dtype=np.int64)
    drawn = sum(draw_stratified(labels, 5, np.random.default_rng(seed)).astype(int) for seed in range(200))
    assert drawn.min() > 60
    assert drawn.max() < 140  # 100 each on average, with a standard deviation of 7


# --------------------------------------------------------------------------------------------------------------- tables


def test_label_counts_and_similarity_by_hand():
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 1])
    one = torch.tensor
    parts = {
        1: ClientIndices(one([4]), one([5]), one([6])),
        0: ClientIndices(one([0, 1]), torch.empty(0, dtype=torch.int64), one([2, 3])),
    }
    counts = label_counts(labels, parts, 4)
    assert counts.tolist() == [[3, 1, 0, 0], [0, 1, 2, 0]]
    similarity = label_similarity(counts)
    assert similarity.dtype == torch.float64
    # (3·0 + 1·1 + 0·2) / (√10 · √5)
    assert similarity.flatten().tolist() == pytest.approx([1, 1 / math.sqrt(50), 1 / math.sqrt(50), 1])


def test_similarity_is_of_distributions_not_of_sizes():
    counts = torch.tensor([[1, 2, 0], [100, 200, 0], [0, 0, 7]])
    assert label_similarity(counts).tolist() == [
        pytest.approx([1, 1, 0]),
        pytest.approx([1, 1, 0]),
        pytest.approx([0, 0, 1]),
    ]


# ------------------------------------------------------------------------------------------------------------ bad input


def test_bad_input_is_an_input_error():
    for changes, words in (
        ({"clients": 0}, ("federation of 0 clients", "1 client or more")),
        ({"scheme": "two_label"}, ("'two_label' is unknown", "did you mean 'two_labels'", "iid, all_labels")),
        ({"scheme": ""}, ("'' is unknown", "choose from iid, all_labels, two_labels, lognormal, k_labels")),
        ({"test_share": 0.0}, ("partition.test_share is 0.0", "above 0 and below 1")),
        ({"test_share": math.nan}, ("partition.test_share is nan", "above 0 and below 1")),
        ({"validation_share": 1.0}, ("partition.validation_share is 1.0", "below 1")),
        ({"sigma": math.inf}, ("partition.sigma is inf", "at most 20")),
        ({"alpha": 0.0}, ("partition.alpha is 0.0", "above 0")),
        ({"clients": 26}, ("100 samples are too few for 26 clients under iid", "1 to validate on", "Lower clients")),
        ({"clients": 10**9}, ("100 samples are too few for 1,000,000,000 clients", "Lower clients")),
        (
            {"test_share": 0.99, "clients": 2},
            ("100 samples are too few for 2 clients", "at least 2 to train on", "test_share"),
        ),
        ({"pool": torch.arange(5), "clients": 2}, ("5 samples are too few for 2 clients", "Lower clients")),
        ({"pool": torch.arange(0)}, ("0 samples are too few for 4 clients",)),
        ({"scheme": "dirichlet", "alpha": 1e-5}, ("alpha 1e-05", "some of 4 clients", "100 samples", "raise alpha")),
        ({"scheme": "shards", "shards_per_client": 26}, ("shards_per_client 26 makes 104 shards", "100 samples")),
        ({"scheme": "shards", "shards_per_client": 2**31 - 1}, ("8,589,934,588 shards", "lower shards_per_client")),
        ({"scheme": "quantity", "minimum": 26}, ("100 samples are too few for 4 clients with 26", "partition.minimum")),
        ({"minimum": 26}, ("iid leaves a client with 25 of the 100", "partition.minimum is 26")),
        ({"scheme": "dirichlet", "minimum": 26}, ("fewer than 26 of the 100", "or set balanced to true")),
        (
            {"scheme": "two_labels", "clients": 1},
            ("3 classes out among 1 client:", "at least 2 classes and 2 clients", "Change `clients`"),
        ),
        (
            {"scheme": "k_labels", "labels_per_client": 4},
            ("3 classes out among 4 clients", "at least 4 classes", "private.classes"),
        ),
        (
            {"scheme": "two_labels", "pool": torch.arange(0, 90, 3)},
            ("1 class out among 4 clients", "at least 2 classes", "private.classes"),
        ),
    ):
        with case(changes):
            arguments = {"clients": 4, "scheme": "iid", "seed": 0} | changes
            with pytest.raises(InputError, match=".*".join(re.escape(word) for word in words)):
                partition(torch.arange(100) % 3, **arguments)


def test_as_many_clients_as_the_samples_allow():
    labels = torch.arange(100) % 3
    assert len(partition(labels, 25, "iid", 0)) == 25  # 4 each: 2 train, 1 validation, 1 test
    assert len(partition(labels, 33, "iid", 0, validation_share=0)) == 33  # 3 each: 2 train, 1 test


def test_a_pool_that_names_a_sample_twice_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="names a sample twice"):
        partition(torch.arange(100) % 3, 2, "iid", 0, pool=torch.tensor([1, 2, 3, 3]))


def test_shares_are_not_fooled_by_binary_fractions():
    parts = partition(torch.zeros(100, dtype=torch.int64), 1, "iid", 0, test_share=0.07)
    assert len(parts[0].test) == 7  # 0.07 x 100 is 7.000000000000001 to the machine
