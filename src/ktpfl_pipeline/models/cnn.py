"""Two small convolutional networks for tests and laptops, without and with BatchNorm; from no paper.

BatchNorm: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift", ICML 2015.
"""

from torch import nn


def cnn(channels: int, size: int, classes: int) -> nn.Module:
    """Return two 3x3 convolutions (8, 16), each with ReLU and 2x2 max pooling, and a linear head.

    With 10 classes: 9,098 parameters at (1, 28, 28), 11,642 at (3, 32, 32).
    """
    side = size // 4
    return nn.Sequential(
        nn.Conv2d(channels, 8, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side * side, classes),
    )


def cnn_bn(channels: int, size: int, classes: int) -> nn.Module:
    """Return `cnn` with BatchNorm after each convolution, which then needs no bias.

    With 10 classes: 9,122 parameters at (1, 28, 28), 11,666 at (3, 32, 32), and 48 values in BatchNorm's running means
    and variances: the cheapest model that exercises the BatchNorm policies.
    """
    side = size // 4
    return nn.Sequential(
        nn.Conv2d(channels, 8, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side * side, classes),
    )
