from fractions import Fraction

import numpy as np
import torch
from cases import case
from images import GREY, NUMBERS
from input_errors import input_error
from PIL import Image

from ktpfl_pipeline.data.sources import adapt, adaptation


def test_adapt_changes_nothing_when_nothing_is_to_be_done():
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert adapt(images, (1, 8, 8)) is images


def test_grey_becomes_rgb_by_repetition():
    images = torch.from_numpy(GREY[:, None, :5])
    assert torch.equal(adapt(images, (3, 5, 5)), images.repeat(1, 3, 1, 1))


def test_rgb_becomes_grey_by_luma():
    colors = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 20, 30]], dtype=torch.uint8)
    # 0.299 · 255 = 76.2, 0.587 · 255 = 149.7, 0.114 · 255 = 29.1, 10 · 0.299 + 20 · 0.587 + 30 · 0.114 = 18.15
    assert adapt(colors.view(5, 3, 1, 1), (1, 1, 1)).flatten().tolist() == [76, 150, 29, 255, 18]


def test_shrinking_is_antialiased_and_growing_interpolates():
    stripes = torch.tensor([0, 255] * 4, dtype=torch.uint8).expand(1, 1, 8, 8)
    assert adapt(stripes, (1, 4, 4)).float().std() < 30  # without antialiasing, stripes may survive or alias
    two = torch.tensor([[0, 100], [0, 100]], dtype=torch.uint8).view(1, 1, 2, 2)
    assert adapt(two, (1, 4, 4))[0, 0, 0].tolist() == [0, 25, 75, 100]  # pixel centres: a quarter and three quarters
    assert adapt(torch.full((1, 1, 7, 9), 255, dtype=torch.uint8), (3, 5, 5)).unique().tolist() == [255]


def test_resizing_agrees_with_pillow():
    for size in (12, 28, 40):
        with case(size):
            images = NUMBERS.integers(0, 256, (3, 28, 28)).astype(np.uint8)
            ours = adapt(torch.from_numpy(images[:, None]), (1, size, size))[:, 0].numpy().astype(int)
            pillows = [
                np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)) for image in images
            ]
            assert np.abs(ours - np.stack(pillows)).max() <= 1


def exactly(image: list[list[int]], size: tuple[int, int]) -> list[list[int]]:
    """Return a gray image after bilinear resizing in exact fractions, rounded once, halves to even."""

    def weights(old: int, new: int) -> list[list[Fraction]]:
        scale = Fraction(old, new)
        centers = [(i + Fraction(1, 2)) * scale - Fraction(1, 2) for i in range(new)]
        rows = [[max(Fraction(0), 1 - abs(c - j) / max(scale, 1)) for j in range(old)] for c in centers]
        return [[weight / sum(row) for weight in row] for row in rows]

    down, across = weights(len(image), size[0]), weights(len(image[0]), size[1])
    rows = [[sum(w * p for w, p in zip(own, row, strict=True)) for own in across] for row in image]
    return [[round(sum(w * row[x] for w, row in zip(own, rows, strict=True))) for x in range(size[1])] for own in down]


def test_pixels_are_exact_so_that_no_processor_has_others():
    """Among them are halves, such as all of the middle columns here, which an error in the last digit would turn."""
    for sides, size in (((8, 8), (28, 28)), ((9, 8), (5, 28)), ((3, 14), (7, 4)), ((32, 32), (28, 28))):
        with case(sides, size):
            images = NUMBERS.integers(0, 256, (2, *sides)).astype(np.uint8)
            images[1] = [[0, 1] * (sides[1] // 2)] * sides[0]
            found = adapt(torch.from_numpy(images[:, None]), (1, *size))
            assert found[:, 0].tolist() == [exactly(image.tolist(), size) for image in images]
    colors = torch.tensor([[0, 0, 250], [0, 0, 0]], dtype=torch.uint8).T.reshape(1, 3, 1, 2)
    assert adapt(colors, (1, 1, 4)).flatten().tolist() == [28, 21, 7, 0]  # of 28.5, which is not rounded before


def test_large_sides_stay_exact_enough():
    wide = torch.full((1, 1, 3, 70_001), 255, dtype=torch.uint8)
    assert adapt(wide, (1, 2, 32)).unique().tolist() == [255]


def test_chunks_do_not_change_the_result(monkeypatch):
    images = torch.from_numpy(NUMBERS.integers(0, 256, (7, 3, 6, 5)).astype(np.uint8))
    whole = adapt(images, (1, 9, 9))
    monkeypatch.setattr(adaptation, "_CHUNK_VALUES", 500)  # 2 images at a time
    assert torch.equal(adapt(images, (1, 9, 9)), whole)


def test_sides_need_not_be_equal():
    images = torch.from_numpy(NUMBERS.integers(0, 256, (2, 3, 6, 5)).astype(np.uint8))
    assert adapt(images, (3, 4, 9)).shape == (2, 3, 4, 9)
    assert torch.equal(adapt(images, (3, 4, 9)), adapt(images.mT, (3, 9, 4)).mT)


def test_other_channels_keep_their_number():
    for channels in (2, 4):
        with case(channels):
            images = torch.from_numpy(NUMBERS.integers(0, 256, (2, channels, 6, 6)).astype(np.uint8))
            assert torch.equal(adapt(images, (channels, 3, 3))[:, 1:2], adapt(images[:, 1:2], (1, 3, 3)))
            assert torch.equal(adapt(images[:, :1], (channels, 6, 6)), images[:, :1].repeat(1, channels, 1, 1))


def test_impossible_shapes_are_input_errors():
    for given, shape, words in (
        (3, (2, 8, 8), ("images have 3 channels, which cannot be converted to 2", "image.channels to 3 or 1,")),
        (4, (3, 8, 8), ("images have 4 channels, which cannot be converted to 3", "image.channels to 4,")),
        (1, (1, 10**6, 10**6), ("2 images, resized to 1000000 x 1000000", "need more than", "smaller size")),
    ):
        with case(given, shape), input_error(*words):
            adapt(torch.zeros(2, given, 8, 8, dtype=torch.uint8), shape)


def test_the_conversion_is_described():
    for native, shape, words in (
        ((1, 8, 8), (1, 28, 28), "8 × 8 gray, resized to 28 × 28"),
        ((3, 48, 64), (1, 28, 28), "48 × 64 RGB, converted to 28 × 28 gray"),
        ((4, 8, 8), (4, 8, 8), "8 × 8 in 4 channels"),
        ((4, 8, 8), (4, 9, 9), "8 × 8 in 4 channels, resized to 9 × 9"),
        ((), (3, 64, 64), "converted to 64 × 64 RGB"),
        ((9, 128), (9, 128), "series of 9 × 128"),
        ((30,), (30,), "vectors of 30"),
    ):
        with case(native, shape):
            assert adaptation.converted(native, shape) == words
