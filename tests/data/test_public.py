import os
from pathlib import Path

import pytest
import torch
from cases import case
from input_errors import input_error

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.public import check_size, open_indices, open_part, without_overlap
from ktpfl_pipeline.data.sources import load


def random_images(number: int, seed: int, channels: int = 1, size: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (number, channels, size, size), dtype=torch.uint8, generator=generator)


# ------------------------------------------------------------------------------------------------------------ open part


def test_open_part_is_stratified_and_takes_every_sample_once():
    for share, seed in ((0.01, 0), (0.25, 7), (0.3, 0), (0.9, 7)):
        with case(share, seed):
            labels = torch.tensor([0] * 500 + [1] * 300 + [4] * 201)[torch.randperm(1001)]
            public, private = open_part(labels, share, seed)
            assert torch.equal(torch.cat([public, private]).sort().values, torch.arange(1001))
            assert len(public) == round(share * 1001)
            quota = torch.bincount(labels) * len(public) / 1001
            assert (torch.bincount(labels[public], minlength=5) - quota).abs().max() < 1
            assert public.dtype == private.dtype == torch.int64
            assert torch.equal(public, public.sort().values)
            assert torch.equal(private, private.sort().values)


def test_open_part_depends_only_on_the_seed():
    labels = torch.arange(200) % 10
    first = open_part(labels, 0.2, 0)[0]
    torch.manual_seed(5)
    assert torch.equal(open_part(labels, 0.2, 0)[0], first)
    assert not torch.equal(open_part(labels, 0.2, 1)[0], first)


def test_shares_that_leave_one_side_empty_are_refused():
    for share, samples, words in (
        (0.0, 100, ("share 0.0", "above 0 and below 1")),
        (1.0, 100, ("share 1.0", "above 0 and below 1")),
        (-0.2, 100, ("share -0.2", "for example 0.1")),
        (float("nan"), 100, ("share nan", "above 0 and below 1")),
        (0.001, 100, ("share 0.001 of 100 samples makes 0", "nearer to 0.5")),
        (0.999, 100, ("share 0.999 of 100 samples makes 100", "nearer to 0.5")),
        (0.5, 0, ("share 0.5 of 0 samples makes 0", "more samples")),
    ):
        with case(share, samples), input_error(*words):
            open_part(torch.zeros(samples, dtype=torch.int64), share, 0)


# -------------------------------------------------------------------------------------------------------------- overlap


def test_public_images_that_are_private_are_dropped_in_place():
    public, private = random_images(300, 0, channels=3), random_images(50, 1, channels=3)
    public[[17, 120, 299]] = private[[0, 1, 1]]
    kept = without_overlap(public, private)
    rest = [row for row in range(300) if row not in (17, 120, 299)]
    assert torch.equal(kept, public[rest])


def test_one_pixel_makes_the_difference():
    private = random_images(100, 0)
    public = private.clone()
    public[:, 0, 5, 5] ^= 1
    assert without_overlap(public, private) is public


def test_shuffled_and_non_contiguous_images_are_recognized():
    private = random_images(400, 0)
    public = torch.cat([random_images(400, 1), private[7:8]]).permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)
    assert len(without_overlap(public, private.flip(0))) == 400


def test_more_than_one_percent_is_refused():
    for copies, refuse in ((10, False), (11, True), (1000, True)):
        with case(copies):
            public, private = random_images(1000, 0), random_images(1200, 1)
            public[:copies] = private[:copies]
            if not refuse:
                assert len(without_overlap(public, private)) == 1000 - copies
                continue
            with pytest.raises(
                InputError, match=rf"shares {copies:,} of its 1,000 samples with the private data.*open_part"
            ):
                without_overlap(public, private)


def test_images_of_different_shapes_are_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="differ"):
        without_overlap(random_images(2, 0, size=5), random_images(2, 0, size=6))


def test_a_public_set_without_overlap_is_returned_unchanged():
    images = random_images(2_000, 0, size=28)
    assert without_overlap(images, images.flip(3)) is images


@pytest.mark.real_data
@pytest.mark.skipif("KTPFL_REAL_DATA" not in os.environ, reason="KTPFL_REAL_DATA names no folder")
@pytest.mark.parametrize(("public", "private"), [("mnist", "fashion_mnist"), ("cifar100", "cifar10")])
def test_the_papers_public_sets_do_not_overlap_with_its_private_data(public, private):
    folder = Path(os.environ["KTPFL_REAL_DATA"])
    images = load(f"npz:{public}.npz", folder).inputs
    assert len(without_overlap(images, load(f"npz:{private}.npz", folder).inputs)) == len(images)
    with pytest.raises(InputError, match="the public set shares 1,000 of its"):
        without_overlap(images, images[:1000])


# ----------------------------------------------------------------------------------------------------------------- size


def test_a_batch_larger_than_the_public_set_is_refused():
    check_size(3000, 3000)
    with pytest.raises(InputError, match=r"public\.batch is 3,001 .* 3,000 samples: lower public\.batch"):
        check_size(3000, 3001)
    with pytest.raises(InputError, match=r"2 samples, without 158 .*: lower public\.batch to 2 or less, or choose"):
        check_size(2, 5, left_out=158)
    with pytest.raises(InputError, match=r"0 samples, without 160 private ones: choose another public"):
        check_size(0, 5, left_out=160)


def test_a_table_of_few_different_rows_has_no_open_part_and_says_so(caplog):
    rows = torch.cartesian_prod(*[torch.arange(3.0)] * 4).repeat(10, 1)
    chosen, left_out = open_indices(LabeledDataset(rows, torch.arange(810) % 2), 0.2, seed=0)
    assert (len(chosen), left_out) == (0, 162)
    assert (
        "the open part leaves out 162 of the 162 samples drawn for it, because equal samples are private."
        in caplog.text
    )


def test_an_open_part_holds_no_image_that_the_rest_holds_a_second_time():
    images = random_images(200, 0)
    images[100:] = images[:100]  # every image twice
    labels = torch.arange(200) % 2
    chosen, left_out = open_indices(LabeledDataset(images, labels), 0.3, seed=1)
    assert len(chosen) + left_out == 60
    rest = torch.ones(200, dtype=torch.bool)
    rest[chosen] = False
    assert 0 < len(chosen) < 60  # both copies of some are open: these stay
    private = {image.numpy().tobytes() for image in images[rest]}
    assert not any(image.numpy().tobytes() in private for image in images[chosen])
