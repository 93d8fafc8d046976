"""Max pooling of 2 x 2 pixels, which is faster on a CPU than torch's."""

import torch
from torch import Tensor, nn

VECTOR = 8
"""The number of float32 values of a vector with AVX2; pooling fewer channels gains nothing."""


class MaxPool(nn.Module):
    """Max pooling with the same results as `nn.MaxPool2d(2)`, bit for bit.

    torch's max pooling computes the position of each maximum, which only gradients need. Without gradients on a CPU,
    this module takes two elementwise maxima instead, in a tenth of the time. With gradients it pools a copy in
    channels-last format, which torch vectorizes over channels: steps of small networks with batches of 10 take 4 to 9 %
    less time.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the maxima of 2 x 2 pixels: (b, C, H, W) to (b, C, H // 2, W // 2)."""
        if inputs.device.type != "cpu":
            return torch.max_pool2d(inputs, 2)
        if torch.is_grad_enabled():
            if inputs.dim() < 4 or inputs.shape[1] < VECTOR or not inputs.is_contiguous():
                return torch.max_pool2d(inputs, 2)
            return torch.max_pool2d(inputs.contiguous(memory_format=torch.channels_last), 2).contiguous()
        height, width = (side // 2 * 2 for side in inputs.shape[-2:])
        rows = torch.maximum(inputs[..., 0:height:2, :width], inputs[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


def pooled_relu() -> list[nn.Module]:
    """Return layers that are equal to ReLU followed by 2 x 2 max pooling, bit for bit, including gradients.

    Pooling is applied first, so that ReLU processes a quarter of the numbers. Small networks take 4 to 9 % less time.
    """
    return [MaxPool(), nn.ReLU()]
