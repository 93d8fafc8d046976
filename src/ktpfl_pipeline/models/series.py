"""A convolutional and a recurrent network for series, such as sensor data.

cnn1d has convolutions of width 9 with 32 and 64 channels, like HARCNN, a model for human activity recognition in
federated learning (J. Zhang et al., "PFLlib: Personalized Federated Learning Algorithm Library", JMLR 2025). HARCNN has
1.7 million weights after the convolutions; cnn1d has a mean over time instead.

gru has gated recurrent units (K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical
Machine Translation", EMNLP 2014).
"""

from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def cnn1d(shape: Shape, classes: int) -> nn.Module:
    """Return two convolutions (32 and 64 channels) with ReLU and max pooling, a mean over time, and a linear head.

    The shortest series has 4 values. Parameters with 6 classes: 21,510 at (9, 128).
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
    """Return a layer of 64 gated recurrent units, the mean of its states over time, and a linear head.

    Series may have any length. Parameters with 6 classes: 14,790 at (9, 128).
    """
    channels, _ = shapes.series("gru", shape, least=1)
    return nn.Sequential(MeanState(channels, 64), nn.Linear(64, classes))


class MeanState(nn.Module):
    """The mean over time of the states of gated recurrent units."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.units = nn.GRU(channels, units, batch_first=True)

    def forward(self, series: Tensor) -> Tensor:
        """Return the mean states, (n, units), for series, (n, channels, length)."""
        states: Tensor = self.units(series.transpose(1, 2))[0]  # (n, length, units)
        return states.mean(dim=1)
