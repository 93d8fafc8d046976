from itertools import product

import pytest
import torch
from torch import nn

from ktpfl_pipeline.models.images import MaxPool, pooled_relu


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 6, 7, 5), (1, 1, 2, 3), (2, 9, 7, 6)])
def test_is_torchs_max_pooling_to_the_bit(shape: tuple[int, ...]) -> None:
    """With a gradient and without; a NaN in one window, and many equal numbers."""
    dtypes, orders = (torch.float32, torch.bfloat16, torch.float64), (torch.contiguous_format, torch.channels_last)
    for case in product(dtypes, orders):
        dtype, order = case
        images = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
        images[0, 0, 1, 1] = torch.nan
        images = images.contiguous(memory_format=order)
        expected = nn.MaxPool2d(2)(images)
        for found in (MaxPool()(images), torch.no_grad()(MaxPool())(images)):
            assert torch.equal(found.nan_to_num(9.0), expected.nan_to_num(9.0)), case
            assert found.dtype == dtype
            assert found.is_contiguous(memory_format=order)


@pytest.mark.parametrize("channels", [3, 8])
def test_gradient_is_torchs(channels: int) -> None:
    images = torch.randint(-1, 2, (2, channels, 9, 8)).float().requires_grad_()
    weights = torch.randn(2, channels, 4, 4)
    one, other = (torch.autograd.grad(pool(images), images, weights)[0] for pool in (MaxPool(), nn.MaxPool2d(2)))
    assert torch.equal(one, other)


def test_images_of_several_models_at_once() -> None:
    images = torch.randn(3, 2, 4, 8, 8)
    with torch.inference_mode():
        assert torch.equal(torch.func.vmap(MaxPool())(images), torch.func.vmap(nn.MaxPool2d(2))(images))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_relu_after_pooling_is_relu_before_it(dtype: torch.dtype) -> None:
    """To the bit, and so are the gradients: of windows with ties, without a positive number, and with a NaN."""
    images = torch.randint(-3, 3, (4, 3, 6, 7), generator=torch.Generator().manual_seed(0)).to(dtype)
    images[0, 0, :2, :2], images[1, 1, :2, :2], images[2, 2, 0, 0] = -1.0, 0.0, torch.nan
    weights = torch.arange(4 * 3 * 3 * 3).reshape(4, 3, 3, 3).to(dtype)
    found = []
    for layers in (pooled_relu(), [nn.ReLU(), nn.MaxPool2d(2)]):
        given = images.clone().requires_grad_()
        pooled = nn.Sequential(*layers)(given)
        (gradient,) = torch.autograd.grad(pooled, given, weights)
        found.append((pooled.nan_to_num(9.0), gradient))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
