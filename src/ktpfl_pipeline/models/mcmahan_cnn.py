"""The models of FedAvg's first experiments, and the CNN of PFLlib.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017: the MNIST CNN and the 2NN of its section 3. J. Zhang et al., "PFLlib: A
Beginner-Friendly and Comprehensive Personalized Federated Learning Library and Benchmark", JMLR 2025: the CNN without
padding.
"""

from math import prod

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
    return _cnn(channels, (height // 4) * (width // 4), classes, padding=2)


def mcmahan_unpadded(shape: Shape, classes: int) -> nn.Module:
    """Return `mcmahan_cnn` without padding: the CNN of PFLlib, HtFLlib and the papers that use them.

    The smallest image has 16 x 16 pixels. Numbers of parameters with 10 classes:

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


def mcmahan_2nn(shape: Shape, classes: int) -> nn.Module:
    """Return an MLP with two hidden layers of 200 units and ReLU, for numeric inputs of any shape.

    Numbers of parameters with 10 classes:

    - 199,210 at (1, 28, 28), as stated in the paper
    - 656,810 at (3, 32, 32)
    """
    width = prod(shapes.numbers("mcmahan_2nn", shape))
    layers = (nn.Linear(width, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes))
    return nn.Sequential(nn.Flatten(), *layers)
