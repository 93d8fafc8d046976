"""A multilayer perceptron for tests and laptops; from no paper."""

from math import prod

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Return one hidden layer of 64 units with ReLU, over inputs of any shape.

    With 10 classes: 50,890 parameters at (1, 28, 28), 197,322 at (3, 32, 32).
    """
    width = prod(shapes.numbers("mlp", shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, classes))
