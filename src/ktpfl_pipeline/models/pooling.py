"""Max pooling of 2 x 2 pixels, as quick as it can be on a CPU."""

import torch
from torch import Tensor, nn


class MaxPool(nn.Module):
    """`nn.MaxPool2d(2)` to the bit.

    torch's looks for the place of each maximum, which a gradient needs and a prediction does not: two maxima of whole
    tensors take a tenth of its time.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the largest of each 2 x 2 pixels, (b, C, H // 2, W // 2) of (b, C, H, W)."""
        if inputs.device.type != "cpu" or torch.is_grad_enabled():
            return torch.max_pool2d(inputs, 2)
        height, width = (side // 2 * 2 for side in inputs.shape[-2:])
        rows = torch.maximum(inputs[..., 0:height:2, :width], inputs[..., 1:height:2, :width])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


def pooled_relu() -> list[nn.Module]:
    """Return the layers that do what ReLU and then 2 x 2 max pooling do, to the bit, gradients included.

    The pooling goes first: ReLU then has a quarter of the numbers to do, and small networks take 4 to 9 % less time.
    """
    return [MaxPool(), nn.ReLU()]
