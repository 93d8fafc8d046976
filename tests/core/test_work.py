"""What clients compute: samples where steps are taken, and the operations and memory of an architecture."""

from contextlib import closing
from typing import Any

import pytest
import torch
import toy
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ktpfl_pipeline.core import engine, work
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.recipe import Recipe
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.methods import create

EPOCHS, PUBLIC = 2, 13  # of a toy federation: E, and one epoch over B public images
ALONE = [float(EPOCHS * size) for size in toy.SIZES]


def spent(name: str, fed: Any = None, **schedule: Any) -> dict[str, list[float]]:
    with closing((fed or toy.alike()).executor):
        return engine.run(create(name), fed or toy.alike(), Schedule(**{"rounds": 1, **schedule})).history[0].work


class TestSamples:
    def test_of_local_training(self) -> None:
        assert spent("local")["samples"] == ALONE

    @pytest.mark.parametrize(
        ("name", "factor"), [("pfedme", 5), ("ditto", 2), ("fml", 2), ("fedavg", 1), ("fedrep", 1)]
    )
    def test_of_methods_in_units_of_local_training(self, name: str, factor: int) -> None:
        """pFedMe takes five inner steps on each batch; Ditto and FML train two models."""
        assert spent(name)["samples"] == [factor * own for own in ALONE]

    def test_of_the_hessian_free_meta_step(self) -> None:
        """Three batches a step, of which the last is taken twice: 4/3 where batches come in threes."""
        assert spent("per_fedavg_hf", toy.alike(training=LocalTraining(epochs=1, batch_size=3)))["samples"][3] == 12.0

    def test_public_images_count(self) -> None:
        assert spent("kt_pfl", toy.federation())["samples"] == [own + PUBLIC for own in ALONE]

    def test_what_the_server_trains_does_not(self) -> None:
        assert spent("feddf", toy.federation())["samples"] == ALONE

    def test_what_is_thrown_away_after_an_evaluation_does_not(self) -> None:
        assert spent("local", adapt_epochs=(3,))["samples"] == ALONE

    def test_of_private_training_are_those_that_were_drawn(self) -> None:
        """With all samples in one batch, the chance of each is one."""
        training = LocalTraining(epochs=EPOCHS, batch_size=20, privacy=Privacy(1.0))
        assert spent("local", toy.alike(training=training))["samples"] == ALONE

    def test_workers_count_alike(self) -> None:
        assert spent("kt_pfl", toy.federation(executor=ProcessesExecutor(2))) == spent("kt_pfl", toy.federation())


class TestCost:
    def test_of_a_linear_model(self) -> None:
        """A product of 1 x 64 and 64 x 3; autograd keeps the input, and what the loss needs of three logits."""
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        found = work.cost(module, (1, 8, 8))
        assert (found.flops, found.parameters, found.weights) == (2 * 64 * 3, 4 * 195, 4 * 195)
        assert 4 * (64 + 3) <= found.activations <= 4 * (64 + 3 + 8)

    def test_operations_are_three_forward_passes_of_each_sample(self) -> None:
        assert spent("local")["flops"] == [3.0 * 2 * 64 * 3 * own for own in ALONE]

    def test_each_model_counts_by_its_own_architecture(self) -> None:
        """FML's common model is the smallest: here the linear one, beside each client's own."""
        fed = toy.federation()
        costs = {name: work.cost_of(fed, name).flops for name in toy.ARCHITECTURES}
        own = [costs[client.architecture] for client in fed.clients]
        smallest = costs[fed.smallest_architecture]
        assert spent("fml", fed)["flops"] == [3.0 * n * (each + smallest) for n, each in zip(ALONE, own, strict=True)]

    @pytest.mark.parametrize(
        ("optimizer", "parts"), [({}, 1), ({"momentum": 0.9}, 2), ({"optimizer": "adam"}, 3)], ids=str
    )
    def test_memory_of_a_step(self, optimizer: Any, parts: int) -> None:
        """Weights, so many times the parameters for gradients and moments, and a batch of activations."""
        found = work.Cost(flops=0, weights=110, parameters=100, activations=7)
        assert found.training(Recipe(1, 8, **optimizer), 8) == 110 + parts * 100 + 8 * 7

    def test_torchs_compiler_is_not_asked_for(self) -> None:
        """torch wraps what such a class counts with, to import its compiler, two seconds, at the first call."""
        assert work.Products.__torch_dispatch__.__code__.co_filename == work.__file__

    def test_measuring_draws_nothing(self) -> None:
        fed, before = toy.federation(), toy.global_generators()
        assert len(fed.training_memory()) == 5
        assert toy.same(toy.global_generators(), before)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (
            nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.ConvTranspose2d(6, 4, 2), nn.Flatten(), nn.Linear(64, 3)),
            (4, 8, 8),
        ),
        (nn.Sequential(nn.Conv1d(4, 8, 3, groups=2, bias=False), nn.Flatten(), nn.Linear(48, 3, bias=False)), (4, 8)),
        (nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(40, 3)), (5, 8)),
    ],
    ids=["images", "series", "attention"],
)
def test_products_are_counted_as_torch_counts_them(module: nn.Module, shape: tuple[int, ...]) -> None:
    inputs = torch.randn(2, *shape)
    with FlopCounterMode(display=False) as torchs:
        module(inputs)
    with work.Products() as own:
        module(inputs)
    assert own.flops == torchs.get_total_flops() > 0
