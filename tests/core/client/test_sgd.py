"""Batches: their lengths, and the order in each epoch."""

import torch

from ktpfl_pipeline.core.client import sgd


class TestBatches:
    def test_every_index_once_in_batches_of_the_lengths_by_hand(self) -> None:
        expected = {
            (20, 8): [8, 8, 4],  # the last short batch is kept
            (18, 8): [8, 8, 2],
            (17, 8): [8, 9],  # a single image joins the batch before it
            (9, 8): [9],
            (16, 8): [8, 8],
            (8, 8): [8],
            (7, 8): [7],
            (1, 8): [1],
            (3, 2): [3],
            (3, 1): [1, 1, 1],  # batches of one are what was asked for
        }
        for (samples, size), lengths in expected.items():
            parts = sgd.batches(samples, size, torch.Generator().manual_seed(0))
            assert [len(part) for part in parts] == lengths, (samples, size)
            assert sorted(torch.cat(parts).tolist()) == list(range(samples)), (samples, size)

    def test_each_epoch_is_shuffled_anew(self) -> None:
        shuffle = torch.Generator().manual_seed(0)
        one, other = (torch.cat(sgd.batches(50, 8, shuffle)).tolist() for _ in range(2))
        assert one != other
        assert one != list(range(50))


def test_a_step_of_all_tensors_together_is_that_of_one_after_another_to_the_bit() -> None:
    """Numbers without a shape, none at all, and a gradient in channels last too."""
    shapes = [(4, 2, 3, 3), (4,), (7, 36), (), (0, 2)]
    stream = torch.Generator().manual_seed(0)
    weights, slopes = ([torch.randn(shape, generator=stream) for shape in shapes] for _ in range(2))
    slopes[0] = slopes[0].contiguous(memory_format=torch.channels_last)
    expected = [weight.clone().sub_(slope, alpha=0.037) for weight, slope in zip(weights, slopes, strict=True)]
    sgd.step(weights, slopes, 0.037)
    assert all(torch.equal(weight, other) for weight, other in zip(weights, expected, strict=True))
