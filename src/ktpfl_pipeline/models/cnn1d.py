"""A convolutional network for series, such as those of sensors.

Its convolutions are those that federated learning takes for human activity: 9 values wide, 32 and 64 of them, as in
HARCNN of PFLlib (J. Zhang et al., "PFLlib: Personalized Federated Learning Algorithm Library", JMLR 2025). The mean
over time takes the place of its 1.7 million weights behind them.
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
