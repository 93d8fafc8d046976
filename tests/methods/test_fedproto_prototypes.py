"""Class prototypes: features, their means by hand, and training toward them."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Compute, LocalTraining
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods import fedproto
from ktpfl_pipeline.methods.fedproto import FedProto

FOUR = (*toy.ARCHITECTURES, "both")
DIMENSION = 16
KNOWN = torch.tensor([True, False, True])


def targets() -> Tensor:
    return torch.randn(toy.CLASSES, DIMENSION, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def pull(fed: Federation, models: Models, weight: float, known: Tensor = KNOWN, t: int = 1) -> Models:
    return FedProto(weight, DIMENSION).train(models, targets(), known, t, fed)


class TestFeatures:
    def test_are_what_enters_the_last_linear_layer(self) -> None:
        """The mlp has 12 hidden units; F = 4 averages three neighbours each."""
        module, images = toy.build("mlp").eval(), torch.randn(5, 1, 8, 8)
        with fedproto.features(module, 4) as seen:
            module(images)
        hidden = module[:4](images)  # (5, 12)
        assert torch.allclose(seen[0], hidden.view(5, 4, 3).mean(dim=2), rtol=0, atol=1e-6)

    @pytest.mark.parametrize("dimension", [1, 12, 64])
    @pytest.mark.parametrize("architecture", FOUR)
    def test_have_the_common_dimension(self, architecture: str, dimension: int) -> None:
        module = toy.build(architecture)
        with fedproto.features(module, dimension) as seen:
            module(torch.randn(5, 1, 8, 8))
            module(torch.randn(2, 1, 8, 8))
        assert [feature.shape for feature in seen] == [(5, dimension), (2, dimension)]

    def test_the_dimension_of_the_layer_leaves_them_as_they_are(self) -> None:
        module, images = toy.build("linear"), torch.randn(5, 1, 8, 8)
        with fedproto.features(module, 64) as seen:
            module(images)
        assert torch.equal(seen[0], images.flatten(1))

    def test_nobody_listens_afterwards(self) -> None:
        module = toy.build("linear")
        with pytest.raises(ZeroDivisionError), fedproto.features(module, 4) as seen:
            raise ZeroDivisionError
        module(torch.randn(5, 1, 8, 8))
        assert seen == []

    def test_a_model_without_a_linear_layer_is_refused(self) -> None:
        module = nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten())
        with pytest.raises(InputError, match="Sequential has no linear layer"), fedproto.features(module, 4):
            pass


class TestClassMeans:
    def test_by_hand(self) -> None:
        """Two pixels, white 1 and black -1, which are the linear model's features; no image of class 2.

        Class 0 has (1, 1) and (1, -1), of mean (1, 0); class 1 has (-1, -1). With F = 1 the pixels are averaged.
        """
        images = torch.tensor([[255, 255], [0, 0], [255, 0]], dtype=torch.uint8).view(3, 1, 1, 2)
        fed = toy.federation(
            1,
            architectures=("two",),
            dtype="float64",
            build=lambda name: nn.Sequential(nn.Flatten(), nn.Linear(2, toy.CLASSES)),
        )
        client = replace(fed.clients[0], train=LabelledDataset(images, torch.tensor([0, 1, 0])))
        fed = toy.again(fed, clients=(client,))
        for dimension, expected in ((2, [[1.0, 0.0], [-1.0, -1.0], [0.0, 0.0]]), (1, [[0.5], [-1.0], [0.0]])):
            means, counts = fedproto.upload_means(fed, fed.initial_models(), dimension)
            assert means.tolist() == [expected]
            assert counts.tolist() == [[2.0, 1.0, 0.0]]

    def test_are_those_of_the_module_in_eval_mode(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.train(fed.initial_models(), 1)
        some = {n: models[n] for n in (20, 7, 12, 11)}
        means, counts = fedproto.upload_means(fed, some, 8)
        assert means.shape == (4, toy.CLASSES, 8)
        assert means.dtype == counts.dtype == torch.float64
        for row, (n, params) in enumerate(some.items()):
            client = fed.by_id[n]
            module = toy.build(client.architecture).eval()
            module.load_state_dict(params)
            features = module[:-1](client.train.inputs / 127.5 - 1).flatten(1)
            for label in range(toy.CLASSES):
                own = F.adaptive_avg_pool1d(features[client.train.labels == label], 8)
                assert counts[row, label] == len(own) > 0
                assert torch.allclose(means[row, label], own.double().mean(dim=0), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("size", [1, 4])
    def test_the_prediction_batch_does_not_matter(self, size: int) -> None:
        fed = toy.federation(architectures=FOUR)
        small = toy.again(fed, compute=Compute(device="cpu", prediction_batch=size))
        models = fed.initial_models()
        (means, counts), (others, numbers) = (fedproto.upload_means(each, models, 8) for each in (fed, small))
        assert torch.allclose(means, others, rtol=0, atol=1e-5)
        assert torch.equal(counts, numbers)

    def test_leave_the_models_as_they_were(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        before = copy.deepcopy(models)
        fedproto.upload_means(fed, models, 8)
        assert toy.same(models, before)
        assert toy.same(fed.train(models, 1), toy.again(fed).train(models, 1))


class TestTraining:
    def test_weight_0_is_training_alone(self) -> None:
        """Bit for bit."""
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        assert toy.same(pull(fed, models, 0.0), fed.train(models, 1))

    def test_without_a_prototype_it_is_training_alone(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        assert toy.same(pull(fed, models, 1.0, torch.zeros(3, dtype=torch.bool)), fed.train(models, 1))

    def test_one_step_is_that_of_autograd(self) -> None:
        """All 16 images of client 3 in one batch; those of class 1 have no prototype and count zero."""
        training = LocalTraining(epochs=1, batch_size=100, learning_rate=0.1)
        fed = toy.federation(1, architectures=("conv",), dtype="float64", training=training)
        start, samples = fed.initial_models(), fed.clients[0].train
        module = toy.build("conv").double().train()
        module.load_state_dict(start[3])
        features = module[:-1](samples.inputs.double() / 127.5 - 1)  # (16, 36)
        pooled, total = F.adaptive_avg_pool1d(features, DIMENSION), torch.zeros(())
        for feature, label in zip(pooled, samples.labels.tolist(), strict=True):
            if label != 1:
                total = total + ((feature - targets()[label]) ** 2).mean() / 16
        loss = F.cross_entropy(module[-1](features), samples.labels) + 2.0 * total
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        names = [name for name, _ in module.named_parameters()]
        after = pull(fed, start, 2.0)[3]
        for name, gradient in zip(names, gradients, strict=True):
            assert torch.allclose(after[name], start[3][name] - 0.1 * gradient, rtol=0, atol=1e-13)
        assert fed.log.losses["train"] == {3: pytest.approx(loss.item(), abs=1e-13)}
        assert total > 0.1

    def test_the_row_of_an_unknown_class_is_never_read(self) -> None:
        fed = toy.federation()
        models, other = fed.initial_models(), targets()
        other[1] = 1e6
        assert toy.same(FedProto(1.0, DIMENSION).train(models, other, KNOWN, 1, fed), pull(fed, models, 1.0))
        other[2] = 7.0  # this one is known
        moved = FedProto(1.0, DIMENSION).train(models, other, KNOWN, 1, fed)
        assert not toy.same(moved[7], pull(fed, models, 1.0)[7])

    def test_features_come_nearer(self) -> None:
        fed = toy.federation(architectures=("conv",))
        models, everything = fed.initial_models(), torch.ones(3, dtype=torch.bool)
        distance = {}
        for weight in (0.0, 3.0):
            means, _ = fedproto.upload_means(fed, pull(fed, models, weight, everything), DIMENSION)
            distance[weight] = (means - targets()).square().mean()
        assert distance[3.0] < 0.9 * distance[0.0]

    def test_arguments_stay_as_they_were(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models, wanted, known = fed.initial_models(), targets(), KNOWN.clone()
        before = copy.deepcopy(models)
        FedProto(1.0, DIMENSION).train(models, wanted, known, 1, fed)
        assert toy.same(models, before)
        assert torch.equal(wanted, targets())
        assert torch.equal(known, KNOWN)

    def test_the_module_forgets_the_hook(self) -> None:
        fed = toy.federation()
        models = fed.initial_models()
        pull(fed, models, 1.0)
        fedproto.upload_means(fed, models, 8)
        module = fed.executor._space.module(3, models[3])
        assert not module[-1]._forward_pre_hooks


class TestClients:
    targets = torch.randn(toy.CLASSES, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    known = torch.tensor([True, True, False])

    def run(self, fed: Federation, models: Models) -> Models:
        return FedProto(0.5, DIMENSION).train(models, self.targets, self.known, 2, fed)

    def test_each_client_trains_as_it_would_alone(self) -> None:
        fed = toy.federation()
        models = fed.train(fed.initial_models(), 1)
        together = self.run(fed, models)
        assert list(together) == list(models)
        for n in (20, 7):
            alone = self.run(fed, {n: models[n]})[n]
            assert toy.same(alone, together[n])
            assert not toy.same(alone, fed.train({n: models[n]}, 2)[n])

    def test_class_means_are_rows_in_the_order_of_the_models(self) -> None:
        fed = toy.federation()
        models = fed.train(fed.initial_models(), 1)
        means, counts = fedproto.upload_means(fed, models, 9)
        assert means.shape == (5, toy.CLASSES, 9)
        labels = [client.train.labels.tolist() for client in fed.clients]
        assert counts.tolist() == [[own.count(label) for label in range(toy.CLASSES)] for own in labels]
        some = fedproto.upload_means(fed, {20: models[20], 7: models[7]}, 9)
        assert toy.same(some, (means[[4, 1]], counts[[4, 1]]))
