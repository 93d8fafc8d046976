"""Models for numbers that need not be images: an MLP and logistic regression, and two models for series."""

from math import prod

import torch
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import Shape
from ktpfl_pipeline.models import shapes


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Return an MLP with one hidden layer of 64 units and ReLU, for numeric inputs of any shape.

    Numbers of parameters with 10 classes:

    - 50,890 at (1, 28, 28)
    - 197,322 at (3, 32, 32)
    """
    width = prod(shapes.numbers("mlp", shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, classes))


def mcmahan_2nn(shape: Shape, classes: int) -> nn.Module:
    """Return an MLP with two hidden layers of 200 units and ReLU, for numeric inputs of any shape.

    This is the 2NN of the paper of `images.mcmahan_cnn`. Numbers of parameters with 10 classes:

    - 199,210 at (1, 28, 28), as stated in the paper
    - 656,810 at (3, 32, 32)
    """
    width = prod(shapes.numbers("mcmahan_2nn", shape))
    layers = (nn.Linear(width, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes))
    return nn.Sequential(nn.Flatten(), *layers)


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


def cnn1d(shape: Shape, classes: int) -> nn.Module:
    """Return two convolutions (32 and 64 channels) with ReLU and max pooling, a mean over time, and a linear head.

    The convolutions have width 9, as in HARCNN, a model for human activity recognition in federated learning (J. Zhang
    et al., "PFLlib: Personalized Federated Learning Algorithm Library", JMLR 2025). HARCNN has 1.7 million weights
    after them instead of the mean over time. The shortest series has 4 values. Parameters with 6 classes: 21,510 at
    (9, 128).
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

    K. Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    EMNLP 2014. Series may have any length. Parameters with 6 classes: 14,790 at (9, 128).
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
