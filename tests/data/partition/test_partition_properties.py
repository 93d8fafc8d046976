"""Partitioner and public sampler on any labels and numbers: their properties hold, or a sentence says why not."""

import math

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.partition import SCHEMES, partition
from ktpfl_pipeline.data.public import check_size, open_indices, open_part, without_overlap

check = settings(derandomize=True, deadline=None, max_examples=100)
labels = st.one_of(
    st.lists(st.integers(0, 3), max_size=80),
    st.lists(st.integers(0, 9999), max_size=40),
    st.integers(0, 400).map(lambda size: [index % 5 for index in range(size)]),
).map(lambda numbers: torch.tensor(numbers, dtype=torch.int64))
odd = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e-320, 1e308, -1.0, 2.0])
share = st.floats(0, 1) | odd
seed = st.sampled_from([0, 1, 2**63, 10**30, -1])


@check
@given(
    labels=labels,
    clients=st.integers(-1, 12) | st.sampled_from([10**6, 10**30]),
    scheme=st.sampled_from([*SCHEMES, "", "two_label"]),
    seed=seed,
    alpha=st.floats(1e-3, 1e3) | odd,
    more=st.fixed_dictionaries(
        {},
        optional={
            "balanced": st.just(True),
            "shards_per_client": st.integers(1, 9) | st.just(2**31 - 1),
            "minimum": st.integers(0, 30) | st.just(2**31 - 1),
        },
    ),
    test_share=st.sampled_from([0.25, 0.25, 0.4]) | share,
    validation_share=st.sampled_from([0.1, 0.0, 0.3]) | share,
    pooled=st.booleans(),
    data=st.data(),
)
def test_every_sample_is_somewhere_once(
    labels, clients, scheme, seed, alpha, more, test_share, validation_share, pooled, data
) -> None:
    everyone = list(range(len(labels)))
    pool = data.draw(st.lists(st.sampled_from(everyone), unique=True)) if pooled and everyone else everyone
    given_pool = torch.tensor(pool, dtype=torch.int64)
    before = labels.clone(), given_pool.clone()
    try:
        parts = partition(
            labels,
            clients,
            scheme,
            seed,
            alpha=alpha,
            **more,
            test_share=test_share,
            validation_share=validation_share,
            pool=given_pool if pooled else None,
        )
    except InputError as error:
        assert str(error).isprintable()
        assert str(error).endswith(".")
        return
    finally:
        assert torch.equal(labels, before[0])
        assert torch.equal(given_pool, before[1])
    assert list(parts) == list(range(clients))
    splits = [split for own in parts.values() for split in (own.train, own.validation, own.test)]
    assert all(split.dtype == torch.int64 and bool((split.diff() > 0).all()) for split in splits)
    assert sorted(torch.cat(splits).tolist()) == sorted(pool)
    for own in parts.values():
        assert len(own.train) >= 2
        assert len(own.test) >= 1
        assert len(own.validation) >= 1 or not validation_share
        assert not (len(own.validation) and validation_share == 0)


@check
@given(labels=labels, share=share, seed=seed)
def test_an_open_part_has_its_size_and_shares_nothing(labels, share, seed) -> None:
    try:
        public, private = open_part(labels, share, seed)
    except InputError as error:
        assert str(error).endswith(".")
        return
    assert len(public) == round(share * len(labels))
    assert sorted([*public.tolist(), *private.tolist()]) == list(range(len(labels)))


@check
@given(
    pixels=st.lists(st.integers(0, 6), min_size=2, max_size=60),
    share=st.floats(0.05, 0.95),
    seed=seed,
)
def test_no_public_image_is_private(pixels, share, seed) -> None:
    """With so few different images, nearly all are there many times."""
    samples = LabeledDataset(
        torch.tensor(pixels, dtype=torch.uint8).view(-1, 1, 1, 1), torch.zeros(len(pixels), dtype=int)
    )
    try:
        public, left_out = open_indices(samples, share, seed)
    except InputError:
        return
    rest = sorted(set(range(len(pixels))) - set(public.tolist()))
    opened, _ = open_part(samples.labels, share, seed)
    assert len(public) + left_out == len(opened)
    private = {pixels[index] for index in rest if index not in opened.tolist()}
    assert not private & {pixels[index] for index in public.tolist()}


@check
@given(public=st.lists(st.integers(0, 255), max_size=300), private=st.lists(st.integers(0, 255), max_size=30))
@example(public=[], private=[1])
@example(public=[*range(200)], private=[5, 5])
def test_shared_images_are_dropped_in_order_or_refused(public, private) -> None:
    given_public, given_private = (torch.tensor(p, dtype=torch.uint8).view(-1, 1, 1, 1) for p in (public, private))
    try:
        kept = without_overlap(given_public, given_private)
    except InputError as error:
        assert "with the private data" in str(error)
        return
    assert kept.flatten().tolist() == [pixel for pixel in public if pixel not in private]


@check
@given(available=st.integers(0, 10**6), batch=st.integers(1, 10**30))
def test_a_batch_fits_or_is_refused(available, batch) -> None:
    try:
        check_size(available, batch)
    except InputError:
        assert batch > available
    else:
        assert batch <= available
