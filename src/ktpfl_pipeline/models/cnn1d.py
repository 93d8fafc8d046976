"""A convolutional network for series, such as those of sensors.

It has 32 and 64 convolutions of width 9, like HARCNN, which federated learning uses for human activity (J. Zhang et
al., "PFLlib: Personalized Federated Learning Algorithm Library", JMLR 2025). A mean over time replaces HARCNN's 1.7
million weights after the convolutions.
"""

from torch import nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def cnn1d(shape: Shape, classes: int) -> nn.Module:
    """Return two convolutions (32, 64), each with ReLU and max pooling, the mean over time, and a linear head.

    Any length from 4. With 6 classes: 21,510 parameters at (9, 128).
    """
    channels, _ = shapes.series("cnn1d", shape, least=4)
    return nn.Sequential(
        nn.Conv1d(channels, 32, kernel_size=9, padding=4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, 64, kernel_size=9, padding=4),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )
