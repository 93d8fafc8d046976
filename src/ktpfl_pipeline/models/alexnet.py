"""AlexNet for small images.

A. Krizhevsky, I. Sutskever, G. E. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks",
NeurIPS 2012. The channel widths are 64, 192, 384, 256 and 256, as in the one-GPU version (A. Krizhevsky, "One Weird
Trick for Parallelizing Convolutional Neural Networks", arXiv:1404.5997, 2014) and in torchvision.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.pooling import pooled_relu


def alexnet(shape: Shape, classes: int) -> nn.Module:
    """Return AlexNet with kernels for small images: 3x3 in all layers, stride 2 in the first layer.

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
