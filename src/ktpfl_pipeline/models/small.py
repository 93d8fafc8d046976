"""Small models that are not from a paper: logistic regression, an MLP, and CNNs without and with BatchNorm.

BatchNorm: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift", ICML 2015.
"""

from math import prod

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.pooling import pooled_relu


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Return two 3x3 convolutions (8 and 16 channels) with ReLU and 2x2 max pooling, and a linear head.

    The smallest image has 4 x 4 pixels. Numbers of parameters with 10 classes:

    - 9,098 at (1, 28, 28)
    - 11,642 at (3, 32, 32)
    """
    return _convolutional("cnn", shape, classes, norm=False)


def cnn_bn(shape: Shape, classes: int) -> nn.Module:
    """Return `cnn` with BatchNorm after each convolution, and convolutions without bias.

    BatchNorm has 48 running means and variances. The model is the smallest one for tests of the BatchNorm policies.
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


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Return an MLP with one hidden layer of 64 units and ReLU, for numeric inputs of any shape.

    Numbers of parameters with 10 classes:

    - 50,890 at (1, 28, 28)
    - 197,322 at (3, 32, 32)
    """
    width = prod(shapes.numbers("mlp", shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, classes))


class Binary(nn.Module):
    """Logistic regression with one weight vector: the logits are (0, w·x + b)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, (n, 2), of inputs, (n, ...)."""
        score = self.linear(inputs.flatten(1))
        return torch.cat([torch.zeros_like(score), score], dim=1)


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Return logistic regression for numeric inputs of any shape; with two classes it has one weight vector.

    The cross-entropy of `Binary` is the binary cross-entropy of w·x + b. Two weight vectors would take steps of twice
    this size. Numbers of parameters with 10 classes:

    - 7,850 at (1, 28, 28)
    - 30,730 at (3, 32, 32)
    """
    width = prod(shapes.numbers("logistic", shape))
    return Binary(width) if classes == 2 else nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
