"""Recurrent layers of one's own models: in each precision on a CPU, stacked, and by graphs on the stand-in."""

from typing import Any

import devices
import pytest
import recorded
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute

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


@pytest.mark.parametrize("kind", LAYERS)
def test_stacked_clients_are_visited_one_after_another(kind: str) -> None:
    assert toy.same(rounds(kind, executor=StackedExecutor(3))[1], rounds(kind)[1])


@pytest.mark.parametrize("kind", ["gru", "rnn"])  # the stand-in has not what oneDNN keeps of an LSTM
def test_graphs_are_eager_training(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rounds(kind)[1]
    recorded.stand_in(monkeypatch)
    fed, found = rounds(kind, compute=Compute("cpu", graphs=True))
    assert toy.same(found, expected)
    space: Any = fed.executor
    assert any(how == "replayed" for _, how in space.workspace(fed).graphs.taken)
