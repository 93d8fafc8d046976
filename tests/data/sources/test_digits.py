import numpy as np
import torch
from sklearn.datasets import load_digits

from ktpfl_pipeline.data.sources import load


def test_digits_are_grey_images_over_the_full_range(tmp_path):
    samples = load("digits", tmp_path)
    assert samples.inputs.shape == (1797, 1, 8, 8)
    assert samples.inputs.dtype == torch.uint8
    assert samples.labels.dtype == torch.int64
    assert samples.inputs.unique()[[0, 1, -1]].tolist() == [0, 16, 255]  # 0, 1 and 16 of 16; 255/16 is 15.9
    assert samples.labels[:10].tolist() == list(range(10))  # as scikit-learn orders them


def test_digits_equal_scikit_learns(tmp_path):
    expected, samples = load_digits(), load("digits", tmp_path)
    assert np.array_equal(np.rint(samples.inputs[:, 0].numpy() * (16 / 255)), expected.images)
    assert np.array_equal(samples.labels.numpy(), expected.target)
