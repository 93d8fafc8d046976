"""LeNet-5.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-Based Learning Applied to Document Recognition",
Proceedings of the IEEE, 1998.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.pooling import pooled_relu


def lenet(shape: Shape, classes: int) -> nn.Module:
    """Return LeNet-5 with ReLU instead of tanh, max pooling instead of trained subsampling, and no padding.

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
