"""Models for images: those of the paper, and small ones."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes

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


def lenet(shape: Shape, classes: int) -> nn.Module:
    """Return LeNet-5 with ReLU instead of tanh, max pooling instead of trained subsampling, and no padding.

    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-Based Learning Applied to Document Recognition", Proceedings
    of the IEEE, 1998.

    The smallest image has 16 x 16 pixels. Numbers of parameters with 10 classes:

    - 44,426 at (1, 28, 28)
    - 44,726 at (3, 28, 28)
    - 62,006 at (3, 32, 32)
    """
    channels, *sides = shapes.image("lenet", shape, least=16)
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)  # 4 at 28 pixels, 5 at 32
    return nn.Sequential(
        nn.Conv2d(channels, 6, kernel_size=5),
        *pooled_relu(),
        nn.Conv2d(6, 16, kernel_size=5),
        *pooled_relu(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def alexnet(shape: Shape, classes: int) -> nn.Module:
    """Return AlexNet with kernels for small images: 3x3 in all layers, stride 2 in the first layer.

    A. Krizhevsky, I. Sutskever, G. E. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks",
    NeurIPS 2012. The channel widths are 64, 192, 384, 256 and 256, as in the one-GPU version (A. Krizhevsky, "One Weird
    Trick for Parallelizing Convolutional Neural Networks", arXiv:1404.5997, 2014) and in torchvision.

    | layer | 28 pixels | 32 pixels |
    | --- | --- | --- |
    | convolution 64, 3x3, stride 2; ReLU | (64, 14, 14) | (64, 16, 16) |
    | max pooling 2x2 | (64, 7, 7) | (64, 8, 8) |
    | convolution 192, 3x3; ReLU | (192, 7, 7) | (192, 8, 8) |
    | max pooling 2x2 | (192, 3, 3) | (192, 4, 4) |
    | convolutions 384, 256, 256, 3x3; ReLU after each | (256, 3, 3) | (256, 4, 4) |
    | max pooling 2x2 | (256, 1, 1) | (256, 2, 2) |
    | dropout 0.5; fully connected 4096; ReLU | (4096,) | (4096,) |
    | dropout 0.5; fully connected 4096; ReLU | (4096,) | (4096,) |
    | fully connected | (classes,) | (classes,) |

    In contrast to the paper, there is no local response normalization. The smallest image has 15 x 15 pixels. Numbers
    of parameters with 10 classes:

    - 20,125,386 at (1, 28, 28)
    - 20,126,538 at (3, 28, 28), as in the KT-pFL authors' code
    - 23,272,266 at (3, 32, 32)
    """
    channels, *sides = shapes.image("alexnet", shape, least=15)
    height, width = ((side + 1) // 16 for side in sides)
    cells = height * width  # 1 at 28 pixels, 4 at 32
    return nn.Sequential(
        nn.Conv2d(channels, 64, kernel_size=3, stride=2, padding=1),
        *pooled_relu(),
        nn.Conv2d(64, 192, kernel_size=3, padding=1),
        *pooled_relu(),
        nn.Conv2d(192, 384, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, kernel_size=3, padding=1),
        *pooled_relu(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(256 * cells, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, classes),
    )


def resnet18(shape: Shape, classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 with a 3x3 stem of stride 1 and no max pooling, as is usual for CIFAR.

    K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.

    The last feature map is averaged to (512,), so the number of parameters does not depend on the image size. The
    smallest image has 9 x 9 pixels. Parameters with 10 classes: 11,172,810 for 1 channel; 11,173,962 for 3 channels.
    BatchNorm has 9,600 running means and variances.
    """
    from torchvision.models import resnet

    channels, *_ = shapes.image("resnet18", shape, least=9)  # the last map is 2 x 2: BatchNorm needs two values
    model: nn.Module = resnet.resnet18(weights=None, num_classes=classes)
    stem = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as in torchvision's other convolutions
    model.conv1 = stem
    model.maxpool = nn.Identity()
    return model


def shufflenet_v2(shape: Shape, classes: int) -> nn.Module:
    """Return ShuffleNet V2 x1.0 with a 3x3 stem of stride 1 and no max pooling, as is usual for CIFAR.

    N. Ma, X. Zhang, H.-T. Zheng, J. Sun, "ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design",
    ECCV 2018.

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


def mcmahan_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return two 5x5 convolutions (32 and 64 channels) with ReLU and 2x2 max pooling, and a hidden layer of 512 units.

    This is the MNIST CNN of section 3 of H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas,
    "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017. The smallest image has
    4 x 4 pixels. Numbers of parameters with 10 classes:

    - 1,663,370 at (1, 28, 28), as stated in the paper
    - 2,156,490 at (3, 32, 32)
    """
    channels, height, width = shapes.image("mcmahan_cnn", shape, least=4)
    return _cnn(channels, (height // 4) * (width // 4), classes, padding=2)


def mcmahan_unpadded(shape: Shape, classes: int) -> nn.Module:
    """Return `mcmahan_cnn` without padding: the CNN of PFLlib, HtFLlib and the papers that use them.

    J. Zhang et al., "PFLlib: A Beginner-Friendly and Comprehensive Personalized Federated Learning Library and
    Benchmark", JMLR 2025. The smallest image has 16 x 16 pixels. Numbers of parameters with 10 classes:

    - 582,026 at (1, 28, 28)
    - 878,538 at (3, 32, 32)
    """
    channels, height, width = shapes.image("mcmahan_unpadded", shape, least=16)
    return _cnn(channels, ((height - 12) // 4) * ((width - 12) // 4), classes, padding=0)


def _cnn(channels: int, pixels: int, classes: int, padding: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=5, padding=padding),
        *pooled_relu(),
        nn.Conv2d(32, 64, kernel_size=5, padding=padding),
        *pooled_relu(),
        nn.Flatten(),
        nn.Linear(64 * pixels, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Return two 3x3 convolutions (8 and 16 channels) with ReLU and 2x2 max pooling, and a linear head.

    The smallest image has 4 x 4 pixels. Numbers of parameters with 10 classes:

    - 9,098 at (1, 28, 28)
    - 11,642 at (3, 32, 32)
    """
    return _convolutional("cnn", shape, classes, norm=False)


def cnn_bn(shape: Shape, classes: int) -> nn.Module:
    """Return `cnn` with BatchNorm after each convolution, and convolutions without bias.

    It has 48 running means and variances (S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network
    Training by Reducing Internal Covariate Shift", ICML 2015). The model is the smallest one for tests of its policies.
    Numbers of parameters with 10 classes:

    - 9,122 at (1, 28, 28)
    - 11,666 at (3, 32, 32)
    """
    return _convolutional("cnn_bn", shape, classes, norm=True)


def _convolutional(name: str, shape: Shape, classes: int, norm: bool) -> nn.Module:
    channels, height, width = shapes.image(name, shape, least=4)
    parts: list[nn.Module] = []
    for inputs, outputs in ((channels, 8), (8, 16)):
        parts.append(nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=not norm))
        parts += [*([nn.BatchNorm2d(outputs)] if norm else []), *pooled_relu()]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(16 * (height // 4) * (width // 4), classes))
