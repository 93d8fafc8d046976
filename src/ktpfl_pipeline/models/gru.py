"""A recurrent network for series.

K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation", EMNLP
2014: the gated recurrent unit.
"""

from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


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
