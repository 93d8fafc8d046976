"""Samples stay with the owners that they came with."""

import logging
import re
from dataclasses import replace

import pytest
import torch
from cases import case

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import natural

SIZES = (40, 12, 100, 20)
SHUFFLED = torch.randperm(172, generator=torch.Generator().manual_seed(0))
OWNERS = torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))[SHUFFLED]
DATA = OwnedDataset(torch.zeros(172, 3), torch.arange(172) % 4, OWNERS, ("ann", "bo", "cy", "di"))


def owned_by(own) -> set[int]:
    return set(OWNERS[torch.cat(own)].tolist())


def test_everyone_keeps_all_samples():
    parts = natural(DATA, None, 0)
    assert [owned_by(own) for own in parts.values()] == [{0}, {1}, {2}, {3}]
    assert [sum(map(len, own)) for own in parts.values()] == list(SIZES)
    assert [len(own.test) for own in parts.values()] == [10, 3, 25, 5]
    assert [len(own.validation) for own in parts.values()] == [3, 1, 8, 2]
    assert torch.equal(torch.cat([torch.cat(own) for own in parts.values()]).sort().values, torch.arange(172))


def test_a_part_of_the_owners_is_drawn_per_seed_and_split_as_among_all():
    everyone = {seed: natural(DATA, None, seed) for seed in range(8)}
    drawn = {seed: natural(DATA, 2, seed) for seed in range(8)}
    found = set()
    for seed, parts in drawn.items():
        assert list(parts) == [0, 1]
        who = [owned_by(own).pop() for own in parts.values()]
        assert who == sorted(who)
        found.add(tuple(who))
        for client, owner in enumerate(who):
            assert all(map(torch.equal, parts[client], everyone[seed][owner]))
    assert len(found) > 2


def test_test_samples_of_the_source_are_kept():
    test = torch.arange(172) % 2 == 0
    parts = natural(replace(DATA, test=test), None, 0, test_share=0.9)
    for client, own in parts.items():
        assert torch.equal(own.test, (test & (client == OWNERS)).nonzero().flatten())
        assert len(own.validation) == max(1, round(0.1 * int((~test & (client == OWNERS)).sum())))


def test_owners_below_the_minimum_are_left_out_and_the_log_says_so(caplog):
    with caplog.at_level(logging.INFO):
        parts = natural(DATA, None, 3, minimum=21)
    assert [owned_by(own) for own in parts.values()] == [{0}, {2}]
    assert "Seed 3: the partition leaves out 2 of 4 clients: bo, di. Each has fewer than 21 samples, or" in caplog.text


def test_an_owner_that_cannot_be_split_is_left_out_by_any_minimum(caplog):
    tested = replace(DATA, test=(OWNERS == 1) | (torch.arange(172) % 3 == 0))  # bo has nothing to train on
    with caplog.at_level(logging.INFO):
        parts = natural(tested, None, 0, minimum=1)
    assert [owned_by(own) for own in parts.values()] == [{0}, {2}, {3}]
    assert "leaves out 1 of 4 clients: bo." in caplog.text
    assert all(map(torch.equal, parts[1], natural(tested, 3, 0, minimum=10)[1]))


def test_owners_without_kept_samples_are_not_clients(caplog):
    """`private.classes` and `private.samples` keep some samples, and all names."""
    kept = DATA.take((OWNERS != 1).nonzero().flatten())
    with caplog.at_level(logging.INFO):
        parts = natural(kept, None, 0)
    assert [{int(n) for n in kept.owners[torch.cat(own)]} for own in parts.values()] == [{0}, {2}, {3}]
    assert "Seed 0: the partition leaves out 1 of 4 clients: bo. Each has no samples." in caplog.text
    with pytest.raises(InputError, match="of 4 clients is not possible: the source has 3 of them"):
        natural(kept, 4, 0)


def test_samples_outside_the_pool_have_no_client():
    pool = torch.arange(0, 172, 2)
    parts = natural(DATA, None, 0, pool=pool)
    assert torch.equal(torch.cat([torch.cat(own) for own in parts.values()]).sort().values, pool)


def test_what_does_not_fit_is_refused():
    for data, changes, words in (
        (DATA, {"clients": 5}, "federation of 5 clients is not possible: the source has 4 of them. Choose at most"),
        (DATA, {"clients": 3, "minimum": 30}, "the source has 2 of them with 30 samples or more (partition.minimum)"),
        (DATA, {"minimum": 101}, "federation of 0 clients is not possible: the source has 0"),
        (DATA, {"test_share": 0.9}, "'bo' of the source has 1 sample to train and validate on and 11 to test on"),
        (DATA, {"test_share": 1.0}, "partition.test_share is 1.0; it must be a number above 0 and below 1"),
        (replace(DATA, test=OWNERS != 1), {}, "client 'ann' of the source has 0 samples to train and validate on"),
        (replace(DATA, test=OWNERS == 0), {}, "client 'ann' of the source has 0 samples to train and validate on"),
        (replace(DATA, test=OWNERS < 0), {}, "and 0 to test on, and each client needs at least 2 to train on, 1 to"),
        (
            DATA,
            {"pool": torch.arange(0)},
            "federation of 0 clients is not possible: the source has 0 of them. The",
        ),
    ):
        with case(words), pytest.raises(InputError, match=re.escape(words)):
            natural(data, **{"clients": None, "seed": 0} | changes)


def devices(sizes, **settings):
    owners = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    names = tuple(f"device-{n}" for n in range(len(sizes)))
    samples = OwnedDataset(torch.zeros(len(owners), 2), torch.arange(len(owners)) % 2, owners, names)
    return natural(samples, None, 0, **settings)


def test_the_advice_about_small_clients_can_be_followed():
    """Four samples are the fewest with two to train on, one to validate and one to test on."""
    assert len(devices([8, 3, 4, 2], minimum=4)) == 2
    for sizes, changes, words in (
        ([8, 3, 4, 2], {}, "partition.minimum: 4, as 2 of 4 clients have as many, or lower public.share"),
        ([8, 3, 4, 2], {"minimum": 10}, "The largest client has 8 samples: lower partition.minimum, to 4 or more"),
        ([3, 3], {}, "The largest client has 3 samples, and 4 are needed: lower public.share"),
        ([8, 8], {"test_share": 0.01, "validation_share": 0.9}, "The largest client has 8 samples, and 17 are needed"),
    ):
        with case(words), pytest.raises(InputError, match=re.escape(words)):
            devices(sizes, **changes)
