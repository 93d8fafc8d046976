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

    It is torchvision's, except for how channels are shuffled: the same values, without leaving the images' order of
    memory, which torchvision's does twice a block where that is channels-last.

    The last feature map is (1024, 4, 4) at 28 and at 32 pixels, averaged to (1024,): the parameters do not depend on
    the size. With 10 classes: 1,263,422 parameters at 1 channel, 1,263,854 at 3, and 16,180 values in BatchNorm's
    running means and variances.

    The variant in the KT-pFL authors' code has 1,268,646 parameters (0.4 % more) and 16,044 such values. The two
    counts follow if every convolution carries a bias (BatchNorm cancels it) and the first block of stage 2 keeps 24
    channels until its last convolution, where the paper and torchvision have 58.
    """
    from torchvision.models import shufflenetv2

    channels, *_ = shapes.image("shufflenet_v2", shape, least=9)  # 2 x 2 at the end: BatchNorm needs two values
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
    """Return what torchvision's unit of ShuffleNet V2 does, (B, C, H, W) to (B, C', H', W')."""
    if block.stride > 1:
        return shuffled(block.branch1(x), block.branch2(x))
    kept, changed = x.chunk(2, dim=1)
    return shuffled(kept, block.branch2(changed))


def shuffled(a: Tensor, b: Tensor) -> Tensor:
    """Return the channels of `a` and of `b` in turn: (B, C, H, W) twice to (B, 2C, H, W), in their order of memory."""
    if a.stride(1) == 1:  # channels last
        both = torch.cat((a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1)), dim=-1)  # (B, H, W, 2C)
        return both.view(*both.shape[:-1], 2, -1).transpose(-1, -2).flatten(-2).permute(0, 3, 1, 2)
    both = torch.cat((a, b), dim=1)  # (B, 2C, H, W)
    return both.view(len(both), 2, -1, *both.shape[2:]).transpose(1, 2).flatten(1, 2)
