"""Every method trains a model with LayerNorm and GroupNorm, whose head is a convolution where the method takes one.

BatchNorm is in the toy architectures of the contract.
"""

import re
from typing import Any

import pytest
import torch
import toy
from torch import nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.core.weights import Params
from ktpfl_pipeline.methods import METHODS, create

FOR_HEADS = (
    *("fedproto", "fedtgp", "lg_fedavg", "fedgh", "fedre", "fedssa", "fedgen", "fedkd", "fedmrl"),
    *("fedrep", "fedper", "fedbabu", "fedrod", "fedpac", "feddbe", "fedcp", "gpfl"),
)
"""Methods that look for a linear layer."""


def build(name: str) -> nn.Module:
    """Return ``normalized``, with GroupNorm and LayerNorm, or ``convolutional``: with both and no linear layer."""
    stem = [nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ReLU()]  # 4 x 3 x 3
    layers: dict[str, list[nn.Module]] = {
        "normalized": [
            *stem,
            nn.Flatten(),
            nn.LayerNorm(36),
            nn.Linear(36, toy.CLASSES),
        ],
        "convolutional": [
            *stem,
            nn.LayerNorm((4, 3, 3)),
            nn.Conv2d(4, toy.CLASSES, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ],
    }
    return nn.Sequential(*layers[name])


def federation(*architectures: str) -> Federation:
    return toy.federation(3, architectures=architectures, build=build)


def made_for(method: str, fed: Federation) -> Method[Any]:
    return create(
        method,
        {"common": fed.clients[0].architecture}
        if method in ("fml", "fedapen", "fedkd", "fedkd_summed", "fedmrl")
        else {},
    )


def after_a_round(method: str, fed: Federation) -> dict[int, Params]:
    made = made_for(method, fed)
    run = engine.run(made, fed, engine.Schedule(rounds=1))
    assert not run.history[0].diverged
    return made.personal(run.state, [client.id for client in fed.clients], fed)


@pytest.mark.parametrize("method", METHODS)
def test_normalized_models_are_trained(method: str) -> None:
    """Weights and shifts of the normalization too, which go with the model, and a convolution that is the head."""
    fed = federation("normalized" if method in FOR_HEADS else "convolutional")
    made = made_for(method, fed)
    start = made.personal(made.init(fed), list(fed.by_id), fed)
    for n, params in after_a_round(method, fed).items():
        assert params.keys() == start[n].keys()
        for name, tensor in params.items():
            assert tensor.isfinite().all(), name
            kept = method == "fedbabu" and name.startswith("5.")  # its head stays as it was drawn
            assert torch.equal(tensor, start[n][name]) == kept, name


def test_methods_that_need_a_linear_layer_say_so() -> None:
    """Torchvision's SqueezeNet has none; other methods take the convolution that makes its logits as the head."""
    fed, said = federation("convolutional"), {}
    for method in FOR_HEADS:
        try:
            after_a_round(method, toy.again(fed))
        except InputError as refused:
            said[method] = str(refused)
    heads = [name for name in FOR_HEADS if name not in ("fedkd", "fedrep", "fedper", "fedbabu")]
    assert list(said) == heads
    layer, hint = "a Conv2d, not a linear layer", "; prediction: head does not need this"
    asked = re.compile(rf"its head 4 is {layer}({hint})?\): choose other architectures")
    assert [method for method, message in said.items() if not asked.search(message)] == []
