"""Recurrent layers of one's own models: in each precision on a CPU."""

from typing import Any

import devices
import pytest
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.federation import Federation

LAYERS: dict[str, type[nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}


class Rows(nn.Module):
    """Reads an image row by row."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.reader, self.head = LAYERS[kind](8, 6, batch_first=True), nn.Linear(6, toy.CLASSES)

    def forward(self, images: Tensor) -> Any:
        found, _ = self.reader(images.squeeze(1))
        return self.head(found[:, -1])


def rounds(kind: str, **changes: Any) -> tuple[Federation, Any]:
    fed = toy.alike(kind, build=Rows, training=devices.TRAINING, **changes)
    return fed, devices.rounds("kt_pfl", fed)


@pytest.mark.parametrize("kind", LAYERS)
def test_bfloat16_is_float32_rounded(kind: str) -> None:
    (_, whole), (_, reduced) = rounds(kind), rounds(kind, dtype="bfloat16")
    assert 0 < toy.distance(reduced["models"], whole["models"]) < 0.02
