"""ShuffleNet V2 for small images.

N. Ma, X. Zhang, H.-T. Zheng, J. Sun, "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design",
ECCV 2018.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def shufflenet_v2(shape: Shape, classes: int) -> nn.Module:
    """Return ShuffleNet V2 x1.0 with a 3x3 stem of stride 1 and no max pooling, as is usual for CIFAR.

    The model is torchvision's with another implementation of the channel shuffle. It computes the same values. With the
    memory format channels-last, it keeps this format, while torchvision's shuffle changes it twice per block.

    The last feature map is averaged to (1024,), so the number of parameters does not depend on the image size. The
    smallest image has 9 x 9 pixels. Parameters with 10 classes: 1,263,422 for 1 channel; 1,263,854 for 3 channels.
    BatchNorm has 16,180 running means and variances.

    The variant in the KT-pFL authors' code has 1,268,646 parameters and 16,044 running means and variances. These
    numbers result if every convolution has a bias, and if the first block of stage 2 has 24 channels before its last
    convolution instead of the 58 of the paper and torchvision.
    """
    from torchvision.models import shufflenetv2

    channels, *_ = shapes.image("shufflenet_v2", shape, least=9)  # the last map is 2 x 2: BatchNorm needs two values
    model: nn.Module = shufflenetv2.shufflenet_v2_x1_0(weights=None, num_classes=classes)
    model.conv1 = nn.Sequential(
        nn.Conv2d(channels, 24, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
    )
    model.maxpool = nn.Identity()
    for block in model.modules():
        if isinstance(block, shufflenetv2.InvertedResidual):
            block.forward = partial(unit, block)
    return model


def unit(block: Any, x: Tensor) -> Tensor:
    """Return the output of a unit of ShuffleNet V2, as in torchvision: (B, C, H, W) to (B, C', H', W')."""
    if block.stride > 1:
        return shuffled(block.branch1(x), block.branch2(x))
    kept, changed = x.chunk(2, dim=1)
    return shuffled(kept, block.branch2(changed))


def shuffled(a: Tensor, b: Tensor) -> Tensor:
    """Interleave the channels of `a` and `b`, (B, C, H, W) each, to (B, 2C, H, W) with the same memory format."""
    if a.stride(1) == 1:  # channels last
        both = torch.cat((a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1)), dim=-1)  # (B, H, W, 2C)
        return both.view(*both.shape[:-1], 2, -1).transpose(-1, -2).flatten(-2).permute(0, 3, 1, 2)
    both = torch.cat((a, b), dim=1)  # (B, 2C, H, W)
    return both.view(len(both), 2, -1, *both.shape[2:]).transpose(1, 2).flatten(1, 2)
