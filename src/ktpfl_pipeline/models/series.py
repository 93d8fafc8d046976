"""Two networks for series, such as those of sensors: a convolutional and a recurrent one.

cnn1d has 32 and 64 convolutions of width 9, like HARCNN, which federated learning uses for human activity (J. Zhang et
al., "PFLlib: Personalized Federated Learning Algorithm Library", JMLR 2025). A mean over time replaces HARCNN's 1.7
million weights after the convolutions.

gru: K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
EMNLP 2014: the gated recurrent unit.
"""

from torch import Tensor, nn

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


def gru(shape: Shape, classes: int) -> nn.Module:
    """Return one layer of 64 gated recurrent units, the mean of its states over time, and a linear head.

    Any length. With 6 classes: 14,790 parameters at (9, 128).
    """
    channels, _ = shapes.series("gru", shape, least=1)
    return nn.Sequential(MeanState(channels, 64), nn.Linear(64, classes))


class MeanState(nn.Module):
    """Gated recurrent units along a series."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.units = nn.GRU(channels, units, batch_first=True)

    def forward(self, series: Tensor) -> Tensor:
        """Return the mean over time of the units' states, (n, units), of series (n, channels, length)."""
        states: Tensor = self.units(series.transpose(1, 2))[0]  # (n, length, units)
        return states.mean(dim=1)
