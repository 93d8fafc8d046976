"""Two small convolutional networks for tests and laptops, without and with BatchNorm; from no paper.

BatchNorm: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift", ICML 2015.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.pooling import pooled_relu


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Return two 3x3 convolutions (8, 16), each with ReLU and 2x2 max pooling, and a linear head.

    With 10 classes: 9,098 parameters at (1, 28, 28), 11,642 at (3, 32, 32).
    """
    channels, height, width = shapes.image("cnn", shape, least=4)
    head = 16 * (height // 4) * (width // 4)
    return nn.Sequential(*_block(channels, 8), *_block(8, 16), nn.Flatten(), nn.Linear(head, classes))


def cnn_bn(shape: Shape, classes: int) -> nn.Module:
    """Return `cnn` with BatchNorm after each convolution, which then needs no bias.

    With 10 classes: 9,122 parameters at (1, 28, 28), 11,666 at (3, 32, 32), and 48 values in BatchNorm's running means
    and variances: the cheapest model that exercises the BatchNorm policies.
    """
    channels, height, width = shapes.image("cnn_bn", shape, least=4)
    head = 16 * (height // 4) * (width // 4)
    return nn.Sequential(*_block(channels, 8, True), *_block(8, 16, True), nn.Flatten(), nn.Linear(head, classes))


def _block(inputs: int, outputs: int, norm: bool = False) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=not norm)
    return [convolution, *([nn.BatchNorm2d(outputs)] if norm else []), *pooled_relu()]
