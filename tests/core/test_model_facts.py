"""What a model is, found by running it: its head, its layers, what it does to its input, what is tied or frozen."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.model_facts import facts_of, layer_of, look, prepared
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.weights import load, params_of, state_of, trained, wire_bytes

SHAPE = (1, 8, 8)


class Returning(nn.Module):
    """A model whose forward pass is a function of the module and its inputs."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self, inputs.flatten(1))


class Own(nn.Module):
    """A layer of one's own with as many outputs as classes."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(3, 64))

    def forward(self, inputs: Tensor) -> Tensor:
        return F.normalize(inputs) @ self.centers.T


def body(model: Any, inputs: Tensor) -> Tensor:
    found: Tensor = model.head(F.relu(model.body(inputs)))
    return found


HEADS: dict[str, tuple[Callable[[], nn.Module], str | None, str]] = {
    "first": (lambda: Returning(body, head=nn.Linear(9, 3), body=nn.Linear(64, 9)), "head", ""),
    "last": (lambda: Returning(body, body=nn.Linear(64, 9), head=nn.Linear(9, 3)), "head", ""),
    "as wide as another": (lambda: Returning(body, head=nn.Linear(3, 3), body=nn.Linear(64, 3)), "head", ""),
    "with a normalization after it": (
        lambda: Returning(lambda m, x: F.log_softmax(m.head(x), dim=1), head=nn.Linear(64, 3)),
        "head",
        "",
    ),
    "weight_norm": (
        lambda: Returning(lambda m, x: m.head(x), head=parametrizations.weight_norm(nn.Linear(64, 3))),
        "head",
        "computes its weight from other tensors",
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 5, 3), nn.Conv2d(5, 3, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        "1",
        "is a Conv2d, not a linear layer",
    ),
    "own layer": (lambda: Returning(lambda m, x: m.head(x), head=Own()), "head", "is a Own, not a linear layer"),
    "several positions": (
        lambda: Returning(lambda m, x: m.head(x.unflatten(1, (8, 8))).mean(dim=1), head=nn.Linear(8, 3)),
        "head",
        "is applied to several vectors",
    ),
    "two layers": (
        lambda: Returning(lambda m, x: m.one(x) + m.other(x), one=nn.Linear(64, 3), other=nn.Linear(64, 3)),
        None,
        "",
    ),
    "never called": (lambda: Returning(lambda m, x: F.linear(x, m.one.weight), one=nn.Linear(64, 3)), None, ""),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_head_is_the_layer_that_makes_the_logits(kind: str) -> None:
    build, name, unlike = HEADS[kind]
    facts = look(build(), SHAPE)
    if name is None:
        assert facts.head is None
        assert facts.lacks("layer") == "none of its layers computes the logits by itself"
        return
    assert facts.head is not None
    assert facts.head.name == name
    assert facts.lacks("layer") == facts.lacks("") == ""
    assert facts.lacks("linear") == (f"its head {name} {facts.head.unlike}" if unlike else "")
    assert facts.head.unlike.startswith(unlike)


def test_a_head_that_is_tied_or_frozen_is_no_part_by_itself() -> None:
    tied: Any = Returning(lambda m, x: m.head(m.body(x)), body=nn.Linear(64, 64), head=nn.Linear(64, 64))
    tied.head.weight = tied.body.weight
    assert "shares a parameter: head.weight is body.weight too" in look(tied, SHAPE).lacks("layer")
    frozen = Returning(body, body=nn.Linear(64, 9), head=nn.Linear(9, 3).requires_grad_(False))
    assert "is frozen" in look(frozen, SHAPE).lacks("layer")
    bare = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False))
    assert (look(bare, SHAPE).lacks("linear"), look(bare, SHAPE).lacks("biased")) == ("", "its head 1 has no bias")


def test_layers_are_in_the_order_of_their_calls() -> None:
    facts = look(Returning(body, head=nn.Linear(9, 3), spare=nn.Linear(2, 2), body=nn.Linear(64, 9)), SHAPE)
    assert facts.layers == ("spare", "body", "head")
    assert layer_of("a.parametrizations.weight.original0") == layer_of("a.bias") == "a"


@pytest.mark.parametrize("mode", ["always", "training"])
def test_a_model_that_writes_to_its_input_is_given_a_copy(mode: str) -> None:
    def changing(model: Any, inputs: Tensor) -> Tensor:
        found: Tensor = model.head(inputs.mul_(0.5) if mode == "always" or model.training else inputs * 0.5)
        return found

    model = Returning(changing, head=nn.Linear(64, 3))
    facts, inputs = look(model, SHAPE), torch.ones(2, *SHAPE)
    assert facts.changes_input
    model(inputs.clone())
    prepared(model.train(), facts)(inputs)
    assert torch.equal(inputs, torch.ones(2, *SHAPE))
    assert not look(toy.build("mlp"), SHAPE).changes_input


def test_what_is_tied_or_frozen_is_there_once_or_not_at_all() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    model[1].requires_grad_(False)
    names = ["0.weight", "0.bias", "2.bias", "3.weight", "3.bias"]
    assert list(state_of(model)) == list(params_of(model)) == names
    assert [name for name, each in model.named_parameters() if any(each is own for own in trained(model))] == names
    assert wire_bytes(params_of(model)) == 4 * (16 + 4 + 4 + 12 + 3)
    other = {name: torch.randn_like(each) for name, each in params_of(model).items()}
    load(model, state_of(model), other)
    assert model[2].weight is model[0].weight
    assert toy.same(dict(params_of(model)), other)
    prepared(model, look(deepcopy(model), (4,)))
    assert not model.train()[1].training
    with pytest.raises(RuntimeError, match="Missing"):
        load(model, state_of(model), {"0.bias": other["0.bias"]})


def test_each_architecture_is_run_once_and_nothing_is_drawn() -> None:
    built, before = [], toy.global_generators()

    def build(name: str) -> nn.Module:
        built.append(name)
        return toy.build(name)

    first, second = (facts_of(build, "mlp", SHAPE, kinds.FEATURES, toy.CLASSES) for _ in range(2))
    assert first is second
    assert built == ["mlp"] * 3
    assert toy.same(toy.global_generators(), before)


@pytest.mark.parametrize("cause", ["training.batch_size is 1", "batch_norm is train", "batch_norm is domain_specific"])
def test_a_batch_of_one_is_refused_where_batchnorm_cannot_take_it(cause: str) -> None:
    build = lambda name: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))  # noqa: E731
    settings: dict[str, dict[str, Any]] = {
        "training.batch_size is 1": {"training": LocalTraining(batch_size=1)},
        "batch_norm is train": {"distillation": Distillation(batch_norm="train"), "public_batch_size": 1},
        "batch_norm is domain_specific": {"distillation": Distillation(batch_size=1)},
    }
    one = settings[cause]
    with pytest.raises(InputError, match=f"{cause}, and flat cannot be trained on a batch of one"):
        toy.alike("flat", build=build, **one)
    toy.alike("linear", **one)
    toy.alike("conv", **one)  # a map of 3 x 3 suffices
