"""The CNN of FedAvg.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017: the MNIST CNN of its section 3.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes
from ktpfl_pipeline.models.pooling import pooled_relu


def mcmahan_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return two 5x5 convolutions (32 and 64 channels) with ReLU and 2x2 max pooling, and a hidden layer of 512 units.

    The smallest image has 4 x 4 pixels. Numbers of parameters with 10 classes:

    - 1,663,370 at (1, 28, 28), as stated in the paper
    - 2,156,490 at (3, 32, 32)
    """
    channels, height, width = shapes.image("mcmahan_cnn", shape, least=4)
    return nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=5, padding=2),
        *pooled_relu(),
        nn.Conv2d(32, 64, kernel_size=5, padding=2),
        *pooled_relu(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )
