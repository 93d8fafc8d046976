"""Models of one's own: what cannot be trained is refused in one sentence, before any training."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import build, own

SHAPE, CLASSES = (1, 8, 8), 3


class Returning(nn.Module):
    """A linear model whose logits become something else."""

    def __init__(self, change: Any, always: bool = True) -> None:
        super().__init__()
        self.net, self.change, self.always = good(SHAPE, CLASSES), change, always

    def forward(self, inputs: Tensor) -> Any:
        logits = self.net(inputs)
        return self.change(logits) if self.always or self.training else logits


def good(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def frozen(shape: Any, classes: int) -> nn.Module:
    return good(shape, classes).requires_grad_(False)


def overlapping(shape: Any, classes: int) -> nn.Module:
    """Return a model with two parameters in the same memory."""
    model: Any = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, classes))
    model[2].weight = nn.Parameter(model[1].weight.data)
    return model


def complex_(shape: Any, classes: int) -> nn.Module:
    """Return a model with a buffer of complex numbers."""
    model = good(shape, classes)
    model.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
    return model


class Noisy(nn.Module):
    """A linear model that drops out in evaluation mode too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = good(SHAPE, CLASSES)

    def forward(self, inputs: Tensor) -> Any:
        return self.net(nn.functional.dropout(inputs, 0.5))


def beside(shape: Any, classes: int) -> nn.Module:
    """Return a model with a layer that nothing goes through."""
    model = Returning(lambda logits: logits)
    model.spare = nn.Linear(2, 2)
    return model


def dropping(shape: Any, classes: int) -> nn.Module:
    """Return a model that computes with numbers while it is built, and draws."""
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 2)]
    return nn.Sequential(nn.Flatten(), nn.Dropout(rates[1]), nn.Linear(64, classes))


REFUSED: dict[str, tuple[Any, str]] = {
    "fewer": (lambda shape, classes: good(shape, classes - 1), "returned a tensor of (2, 2) for two inputs of 1 x 8 x"),
    "more": (lambda shape, classes: good(shape, classes + 3), "it must return logits, a tensor of (2, 3), one number"),
    "size": (
        lambda shape, classes: nn.Linear(99, classes),
        "does not take inputs of 1 x 8 x 8; it raised RuntimeError: ",
    ),
    "nothing": (lambda shape, classes: None, "The builder 'my_nets:net' returned None; it must return a torch.nn.M"),
    "signature": (
        lambda shape: good(shape, 3),
        "cannot be built for inputs of 1 x 8 x 8 and 3 classes; it raised TypeError: ",
    ),
    "module": (nn.Linear(1, 1), "it must be a function of (shape, classes) that takes these."),
    "lazy": (lambda shape, classes: nn.Sequential(nn.Flatten(), nn.LazyLinear(classes)), "has no shape for 1.weight"),
    "tuple": (lambda *_: Returning(lambda logits: (logits, logits)), "returned a tuple for two inputs of 1 x 8 x 8;"),
    "training": (lambda *_: Returning(lambda logits: {"out": logits}, always=False), "returned a dict for two inputs"),
    "labels": (lambda *_: Returning(Tensor.long), "returned a tensor of (2, 3) of int64 for two inputs"),
    "none": (lambda *_: Returning(lambda logits: None), "returned None for two inputs of 1 x 8 x 8; it must"),
    "empty": (lambda shape, classes: nn.Flatten(), "has no parameters, so that nothing could be trained"),
    "frozen": (frozen, "has requires_grad=False for all of its parameters, so that nothing could be trained"),
    "overlapping": (overlapping, "has 2.weight in the memory of 1.weight, and they are two tensors"),
    "complex": (complex_, "has phase of complex64 (strided); a model's tensors are dense and real"),
    "noisy": (lambda *_: Noisy(), "returned other logits for the same inputs in evaluation mode"),
    "detached": (lambda *_: Returning(Tensor.detach), "returned logits that have no gradient"),
    "in place": (lambda *_: Returning(lambda logits: logits.exp().mul_(2)), "has no gradient (RuntimeError: one of"),
    "unused": (beside, "does not use spare.weight for its logits"),
}


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that can be imported as ``my_nets``."""
    module = ModuleType("my_nets")
    monkeypatch.setitem(sys.modules, "my_nets", module)
    monkeypatch.setattr(own, "TRIED", set())
    return module


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_trained_is_refused(kind: str, nets: Any) -> None:
    nets.net, said = REFUSED[kind]
    with pytest.raises(InputError) as error:
        build("my_nets:net", SHAPE, CLASSES)
    assert "'my_nets:net'" in str(error.value)
    assert said in str(error.value)


def test_a_trial_draws_nothing_and_leaves_no_trace(nets: Any) -> None:
    nets.net = lambda shape, classes: nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), good(shape, classes))
    torch.manual_seed(0)
    theirs = nets.net(SHAPE, CLASSES).state_dict()
    for _ in range(2):  # tried, and known
        torch.manual_seed(0)
        ours = build("my_nets:net", SHAPE, CLASSES)
        assert ours.training
        assert all(map(torch.equal, theirs.values(), ours.state_dict().values()))
        assert all(each.grad is None for each in ours.parameters())


def test_each_is_tried_once(nets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(own, "check", lambda name, model, *given: tried.append(given))
    nets.net = good
    for classes in (3, 3, 4):
        build("my_nets:net", SHAPE, classes)
    assert tried == [(SHAPE, 3), (SHAPE, 4)]


def test_shapes_without_weights_draw_nothing(nets: Any) -> None:
    nets.net = good
    nets.dropping = dropping
    with rng.seeded(0):
        before = torch.get_rng_state()
        with torch.device("meta"):
            assert build("my_nets:net", SHAPE, 10)[1].weight.is_meta
            assert build("my_nets:dropping", SHAPE, 10)[2].weight.shape == (10, 64)
        assert torch.equal(before, torch.get_rng_state())
