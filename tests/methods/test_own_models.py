"""Every method gives the same results for two models that compute the same, however they are written.

One model is written plainly. The other has tied weights, registers its head first and writes to its input.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.rounds import contract
from ktpfl_pipeline.core.weights import wire_bytes
from ktpfl_pipeline.methods import METHODS, create

HYPERPARAMETERS: dict[str, dict[str, Any]] = {name: {"steps": 2} for name in ("fedtgp", "fedgh", "fedgen")}


class Plain(nn.Module):
    """Two hidden layers with one weight, which is named once; a mask is registered first and the head last."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8, dtype=torch.bool))
        parts = self.parts()
        for name in self.order():
            self.add_module(name, parts[name])

    def parts(self) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {"first": nn.Linear(64, 6), "a": nn.Linear(6, 6), "b": nn.Module()}
        found["b"].bias = nn.Parameter(torch.zeros(6))
        return {**found, "head": nn.Linear(6, toy.CLASSES)}

    def order(self) -> tuple[str, ...]:
        return ("first", "a", "b", "head")

    def second(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.a.weight, self.b.bias)

    def shown(self, inputs: Tensor) -> Tensor:
        return inputs.mul(0.8).add(0.1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.a(F.relu(self.first((self.shown(inputs) * self.mask).flatten(1)))))
        found: Tensor = self.head(F.relu(self.second(hidden)))
        return found


class Twisted(Plain):
    """The same function with two names of one weight, its head registered first, and its input written to."""

    def parts(self) -> dict[str, nn.Module]:
        found = super().parts()
        both = nn.utils.skip_init(nn.Linear, 6, 6)
        both.weight, both.bias = found["a"].weight, found["b"].bias
        return {**found, "b": both}

    def order(self) -> tuple[str, ...]:
        return ("head", "first", "a", "b")

    def second(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.b(hidden)
        return found

    def shown(self, inputs: Tensor) -> Tensor:
        return inputs.mul_(0.8).add_(0.1)


def plain(name: str) -> nn.Module:
    return Plain()


def twisted(name: str) -> nn.Module:
    return Twisted()


def normalized(name: str) -> nn.Module:
    """Return a model whose head computes its weight from two tensors."""
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, toy.CLASSES)))


def convolutional(name: str) -> nn.Module:
    """Return a model whose head is a convolution over the whole map."""
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.Conv2d(4, toy.CLASSES, 4), nn.Flatten())


def headless(name: str) -> nn.Module:
    """Return a model in which two layers make the logits together."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(64, toy.CLASSES), nn.Linear(64, toy.CLASSES)

        def forward(self, inputs: Tensor) -> Tensor:
            found: Tensor = self.one(inputs.flatten(1)) + self.other(inputs.flatten(1).abs())
            return found

    return Both()


def frozen(name: str) -> nn.Module:
    """Return a model whose backbone, with BatchNorm, stays as it is."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU()).requires_grad_(False)
    return nn.Sequential(body, nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, toy.CLASSES))


def numbers(samples: LabeledDataset) -> LabeledDataset:
    """Return samples as features in float64, which no operation copies before a model sees them."""
    return LabeledDataset(samples.inputs.double() / 127.5 - 1, samples.labels)


def federation(build: Callable[[str], nn.Module]) -> Federation:
    fed = toy.federation(3, architectures=("own",), dtype="float64", build=build)
    parts = ("train", "validation", "test")
    clients = tuple(replace(each, **{part: numbers(getattr(each, part)) for part in parts}) for each in fed.clients)
    return toy.again(fed, clients=clients, public=fed.public.double() / 127.5 - 1)


def made(name: str) -> Any:
    return create(name, HYPERPARAMETERS.get(name))


@pytest.mark.parametrize("name", METHODS)
def test_how_a_model_is_written_changes_nothing(name: str) -> None:
    method, runs = made(name), []
    for build in (plain, twisted):
        fed = federation(build)
        before = fed.clients[0].test.inputs.clone()
        rounds = 2 if name in toy.REPRESENTATIVES else 1
        run = engine.run(method, fed, Schedule(rounds, evaluate_every=rounds))
        assert torch.equal(fed.clients[0].test.inputs, before)
        runs.append((run.history, method.personal(run.state, list(fed.by_id), fed)))
    (history, models), (others, twins) = runs
    assert history[-1].accuracy == others[-1].accuracy
    assert [each.traffic for each in history] == [each.traffic for each in others]
    for n, model in models.items():
        assert model.keys() == twins[n].keys()
        assert toy.distance({n: model}, {n: twins[n]}) < 1e-9


@pytest.mark.parametrize("name", [*toy.REPRESENTATIVES, "lg_fedavg", "fedmrl", "fedkd"])
def test_a_frozen_backbone_stays_and_does_not_travel(name: str) -> None:
    method, fed = made(name), federation(frozen)
    sizes = {"own": wire_bytes(fed.initial_model("own"))}
    assert sizes == {"own": 4 * (6 * 5 + 5 + 5 * 3 + 3)}
    run = engine.run(method, fed, Schedule(rounds=1))
    for n, model in method.personal(run.state, list(fed.by_id), fed).items():
        assert not any(key.startswith(("0.", "own.0.", "common.0.")) for key in model), n
    for module in fed.executor.workspace(fed)._modules.values():
        body = next(part for part in module.modules() if isinstance(part, nn.BatchNorm1d))
        assert body.num_batches_tracked == 0


HEADS = [name for name, preset in METHODS.items() if preset.kind.needs_head]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("build", [normalized, convolutional])
def test_other_heads_work_or_are_refused_by_name(name: str, build: Any) -> None:
    method = made(name)
    fed = toy.federation(2, architectures=("own",), build=build)
    if method.needs_head == "layer":
        (record,) = engine.run(method, fed, Schedule(rounds=1)).history
        assert not record.diverged
    else:
        with pytest.raises(InputError, match=r"cannot be run on these models, .*'own': its head \d (is a|computes)"):
            engine.run(method, fed, Schedule(rounds=1))


def test_all_methods_that_do_not_fit_are_named_together() -> None:
    methods = {name: create(name) for name in ("local", "fedper", "kt_pfl", "lg_fedavg")}
    fed = toy.federation(2, architectures=("own",), build=headless)
    with pytest.raises(InputError) as error:
        contract.check_methods(methods, fed)
    assert "fedper, lg_fedavg cannot be run" in str(error.value)
    assert "'own': none of its layers computes the logits by itself" in str(error.value)
    assert str(error.value).endswith("or run the methods that fit: compare=local+kt_pfl.")
