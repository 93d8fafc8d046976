"""Models of one's own are built by a function of the shape and the number of classes."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import build

SHAPE, CLASSES = (1, 8, 8), 3


def good(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def dropping(shape: Any, classes: int) -> nn.Module:
    """Return a model that computes with numbers while it is built, and draws."""
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 2)]
    return nn.Sequential(nn.Flatten(), nn.Dropout(rates[1]), nn.Linear(64, classes))


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (lambda shape, classes: None, "The builder 'my_nets:net' returned None; it must return a torch.nn.M"),
    "signature": (
        lambda shape: good(shape, 3),
        "cannot be built for inputs of 1 x 8 x 8 and 3 classes; it raised TypeError: ",
    ),
    "module": (nn.Linear(1, 1), "it must be a function of (shape, classes) that takes these."),
}


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that can be imported as ``my_nets``."""
    module = ModuleType("my_nets")
    monkeypatch.setitem(sys.modules, "my_nets", module)
    return module


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_builder_is_refused(kind: str, nets: Any) -> None:
    nets.net, said = REFUSED[kind]
    with pytest.raises(InputError) as error:
        build("my_nets:net", SHAPE, CLASSES)
    assert "'my_nets:net'" in str(error.value)
    assert said in str(error.value)


def test_shapes_without_weights_draw_nothing(nets: Any) -> None:
    nets.net = good
    nets.dropping = dropping
    with rng.seeded(0):
        before = torch.get_rng_state()
        with torch.device("meta"):
            assert build("my_nets:net", SHAPE, 10)[1].weight.is_meta
            assert build("my_nets:dropping", SHAPE, 10)[2].weight.shape == (10, 64)
        assert torch.equal(before, torch.get_rng_state())
