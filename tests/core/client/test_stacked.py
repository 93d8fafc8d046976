"""The stacked forms of the verbs, each against its form for one client."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline import models
from ktpfl_pipeline.core.client import operations, sgd, stacked
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute, Distillation, LocalTraining
from ktpfl_pipeline.core.weights import Models


def pixels(samples: LabelledDataset, seed: int) -> LabelledDataset:
    """Return the samples with larger images, (n, 1, 28, 28)."""
    noise = torch.randint(0, 200, (len(samples), 1, 28, 28), generator=torch.Generator().manual_seed(seed))
    return LabelledDataset((noise + 18 * samples.labels[:, None, None, None]).to(torch.uint8), samples.labels)


def federation(architecture: str, dtype: Any = "float64", **settings: Any) -> Federation:
    """Return five clients of a real architecture, of unequal sizes, with short last batches."""
    fed = toy.alike(architecture, build=partial(models.build, shape=(1, 28, 28), classes=3), **settings)
    clients = tuple(
        replace(c, **{name: pixels(getattr(c, name), c.id) for name in ("train", "validation", "test")})
        for c in fed.clients
    )
    public = pixels(LabelledDataset(fed.public, torch.zeros(len(fed.public), dtype=torch.int64)), 99).inputs
    training = LocalTraining(epochs=2, batch_size=8, learning_rate=0.01)
    return toy.again(fed, clients=clients, public=public, training=training, compute=Compute("cpu", dtype=dtype))


def alone(verb: Any, fed: Federation, calls: dict[int, Any]) -> dict[int, Any]:
    space = Workspace(fed)
    return {n: verb(space, n, *arguments) for n, arguments in calls.items()}


def together(verb: Any, fed: Federation, calls: dict[int, Any]) -> dict[int, Any]:
    return stacked.STACKED[verb](Workspace(fed), calls)


def largest(one: Models, other: Models) -> float:
    """Return the largest difference of a number, over the largest number of the models."""
    sizes = [float(tensor.abs().max()) for params in one.values() for tensor in params.values()]
    return toy.distance(one, other) / max(sizes)


def values(outcomes: dict[int, Any]) -> dict[int, Any]:
    return {n: outcome.value for n, outcome in outcomes.items()}


class Dtype(nn.Module):
    """Remembers of what type it is shown numbers."""

    seen: ClassVar[set[torch.dtype]] = set()

    def forward(self, images: Tensor) -> Tensor:
        Dtype.seen.add(images.dtype)
        return images


WITHOUT_DROPOUT = ("lenet", "cnn_bn")


class TestTrain:
    @pytest.mark.parametrize("architecture", WITHOUT_DROPOUT)
    def test_equals_one_after_another(self, architecture: str) -> None:
        """Weights, and BatchNorm's running means, unbiased variances and counters, each client its own."""
        fed = federation(architecture)
        calls = {n: (params, 3) for n, params in fed.initial_models().items()}
        one, other = alone(operations.train, fed, calls), together(operations.train, fed, calls)
        assert largest(values(one), values(other)) < 1e-12
        for n in calls:
            assert float(other[n].loss) == pytest.approx(float(one[n].loss), rel=1e-12)
            for name, tensor in one[n].value.items():
                assert other[n].value[name].dtype == tensor.dtype
                if name.endswith("num_batches_tracked"):
                    assert torch.equal(other[n].value[name], tensor)
                if name.endswith("running_var"):
                    assert torch.allclose(other[n].value[name], tensor, rtol=1e-12, atol=0)

    def test_in_float32_it_rounds_differently_and_no_more(self) -> None:
        """From float64 both are equally far."""
        models = {dtype: federation("cnn_bn", dtype) for dtype in ("float64", "float32")}
        calls = {dtype: {n: (params, 3) for n, params in fed.initial_models().items()} for dtype, fed in models.items()}
        exact = values(alone(operations.train, models["float64"], calls["float64"]))
        one, other = (values(how(operations.train, models["float32"], calls["float32"])) for how in (alone, together))
        assert 0 < largest(one, other) < 1e-5
        assert largest(exact, other) < 3 * largest(exact, one)

    def test_products_are_in_bfloat16(self) -> None:
        """Of convolutions and linear layers, and what BatchNorm returns, as in serial; weights stay in float32."""
        layers = (nn.Conv2d(1, 4, 3), Dtype(), nn.BatchNorm2d(4), Dtype(), nn.Flatten(), nn.Linear(144, 3), Dtype())
        fed = toy.alike("conv", dtype="bfloat16", build=lambda name: nn.Sequential(*layers))
        calls = {n: (params, 3) for n, params in fed.initial_models().items()}
        fed.facts("conv")  # in float32
        for how in (alone, together):
            Dtype.seen.clear()
            found = values(how(operations.train, fed, calls))
            assert Dtype.seen == {torch.bfloat16}
            for name, tensor in found[3].items():
                assert tensor.dtype == (torch.int64 if "tracked" in name else torch.float32)

    def test_depthwise_convolutions_are_trained_in_float32(self) -> None:
        layers = (nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4), Dtype(), nn.Flatten(), nn.Linear(64, 3))
        fed = toy.alike("conv", dtype="bfloat16", build=lambda name: nn.Sequential(*layers))
        calls = {n: (params, 3) for n, params in fed.initial_models().items()}
        fed.facts("conv")  # in float32
        for how in (alone, together):
            Dtype.seen.clear()
            values(how(operations.train, fed, calls))
            assert Dtype.seen == {torch.float32}

    @pytest.mark.parametrize("epochs", [None, 0, 1])
    def test_another_number_of_epochs(self, epochs: int | None) -> None:
        fed = toy.alike("conv", dtype="float64")
        calls = {n: (params, 0, epochs) for n, params in fed.initial_models().items()}
        one, other = alone(operations.train, fed, calls), together(operations.train, fed, calls)
        assert toy.distance(values(one), values(other)) < 1e-14
        assert [float(other[n].loss) for n in calls] == pytest.approx([float(one[n].loss) for n in calls])

    def test_dropout(self) -> None:
        """Repeatable, finite, and about as good."""
        fed = toy.alike("mlp")
        calls = {n: (fed.initial_models()[n], 3, 1) for n in toy.IDS}
        one, other = alone(operations.train, fed, calls), together(operations.train, fed, calls)
        assert toy.same(together(operations.train, fed, calls), other)
        for n in calls:
            assert other[n].loss != one[n].loss
            assert float(other[n].loss) == pytest.approx(float(one[n].loss), rel=0.05)


class TestDistill:
    @pytest.mark.parametrize(
        ("architecture", "batch_norm"),
        [("lenet", "frozen"), ("cnn_bn", "frozen"), ("cnn_bn", "train")],
    )
    def test_equals_one_after_another(self, architecture: str, batch_norm: Any) -> None:
        """The one with BatchNorm in both of its modes."""
        distillation = Distillation(epochs=2, batch_size=5, learning_rate=0.05, temperature=2.0, batch_norm=batch_norm)
        fed = federation(architecture, distillation=distillation)
        batch = fed.public_batch(1)
        teachers = torch.rand(5, len(batch), 3, dtype=torch.float64).softmax(dim=2)
        calls = {
            n: (params, own, batch, 1) for (n, params), own in zip(fed.initial_models().items(), teachers, strict=True)
        }
        one, other = alone(operations.distill, fed, calls), together(operations.distill, fed, calls)
        assert largest(values(one), values(other)) < 1e-12
        assert [float(other[n].loss) for n in calls] == pytest.approx([float(one[n].loss) for n in calls], rel=1e-12)

    def test_losses_are_those_of_one_client(self) -> None:
        logits, teachers = torch.randn(3, 7, 4), torch.rand(3, 7, 4).softmax(dim=2)
        expected = [operations.distillation_loss(z, p, 2.5) for z, p in zip(logits, teachers, strict=True)]
        assert torch.allclose(stacked.distillation_losses(logits, teachers, 2.5), torch.stack(expected))


class TestPredictions:
    @pytest.mark.parametrize(("architecture", "size"), [("lenet", 2), ("cnn_bn", 17), ("lenet", 1000)])
    def test_logits(self, architecture: str, size: int) -> None:
        fed = federation(architecture, dtype="float64")
        frozen = replace(fed.distillation, batch_norm="frozen")
        fed = toy.again(fed, compute=replace(fed.compute, prediction_batch=size), distillation=frozen)
        batch, images = fed.public_batch(1), fed.public[:4]
        for verb, argument in ((operations.logits, batch), (operations.cross_logits, images)):
            calls = {n: (params, argument) for n, params in fed.initial_models().items()}
            one, other = alone(verb, fed, calls), together(verb, fed, calls)
            for n in calls:
                assert torch.allclose(other[n].value, one[n].value, rtol=0, atol=1e-13)

    @pytest.mark.parametrize(("split", "size"), [("train", 2), ("train", 17), ("validation", 1000), ("test", 2)])
    def test_evaluate(self, split: Any, size: int) -> None:
        """Clients with unequally many images, and models that are not alike."""
        fed = toy.alike("both", dtype="float64")
        fed = toy.again(fed, compute=replace(fed.compute, prediction_batch=size))
        calls = {n: (params, split) for n, params in fed.train(fed.initial_models(), 1).items()}
        one, other = alone(operations.evaluate, fed, calls), together(operations.evaluate, fed, calls)
        for n in calls:
            assert other[n].value.tolist() == pytest.approx(one[n].value.tolist(), rel=1e-12)


class TestSteps:
    SIZES = (20, 17, 16, 16, 9, 3)

    def epoch(self, sizes: tuple[int, ...] = SIZES) -> list[tuple[slice, Tensor]]:
        shuffles = [torch.Generator().manual_seed(row) for row in range(len(sizes))]
        return stacked.steps(sizes, 8, shuffles, torch.device("cpu"))

    @pytest.mark.parametrize("sizes", [SIZES, SIZES[::-1], (9, 20, 9)])
    def test_each_client_has_its_own_batches_in_their_order(self, sizes: tuple[int, ...]) -> None:
        found: dict[int, list[list[int]]] = {}
        for rows, batch in self.epoch(sizes):
            for row, indices in zip(range(rows.start, rows.stop), batch.tolist(), strict=True):
                found.setdefault(row, []).append(indices)
        for row, size in enumerate(sizes):
            expected = sgd.batches(size, 8, torch.Generator().manual_seed(row))
            assert found[row] == [part.tolist() for part in expected]

    def test_equally_long_batches_go_together(self) -> None:
        lengths = [(rows.start, rows.stop, batch.shape[1]) for rows, batch in self.epoch()]
        assert lengths == [(0, 4, 8), (4, 5, 9), (5, 6, 3), (0, 1, 8), (1, 2, 9), (2, 4, 8), (0, 1, 4)]
