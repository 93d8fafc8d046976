"""Class prototypes: features, their means by hand, and training toward them."""

import copy

import by_hand
import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods.fedproto import FedProto
from ktpfl_pipeline.methods.shared import common_head

FOUR = (*toy.ARCHITECTURES, "both")
DIMENSION = 16
KNOWN = torch.tensor([True, False, True])


def targets() -> Tensor:
    return torch.randn(toy.CLASSES, DIMENSION, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def pull(fed: Federation, models: Models, weight: float, known: Tensor = KNOWN, t: int = 1) -> Models:
    return FedProto(weight, DIMENSION).train(models, targets(), known, t, fed)


class TestTraining:
    def test_with_weight_0_it_is_local_training(self) -> None:
        """Bit for bit."""
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        assert toy.same(pull(fed, models, 0.0), fed.train(models, 1))

    def test_without_prototypes_it_is_local_training(self) -> None:
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
        pooled, total = by_hand.pooled(features, DIMENSION), torch.zeros(())
        for feature, label in zip(pooled, samples.labels.tolist(), strict=True):
            if label != 1:
                total = total + ((feature - targets()[label]) ** 2).mean() / 16
        loss = F.cross_entropy(module[-1](features), samples.labels) + 2.0 * total
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        names = [name for name, _ in module.named_parameters()]
        after = pull(fed, start, 2.0)[3]
        for name, gradient in zip(names, gradients, strict=True):
            assert torch.allclose(after[name], start[3][name] - 0.1 * gradient, rtol=0, atol=1e-13)
        assert fed.current.losses["train"] == {3: pytest.approx(loss.item(), abs=1e-13)}
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
            means, _ = common_head.upload_means(fed, pull(fed, models, weight, everything), DIMENSION)
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
        common_head.upload_means(fed, models, 8)
        module = fed.executor._space.module(3, models[3])
        assert not module[-1]._forward_pre_hooks


class TestClients:
    targets = torch.randn(toy.CLASSES, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    known = torch.tensor([True, True, False])

    def run(self, fed: Federation, models: Models) -> Models:
        return FedProto(0.5, DIMENSION).train(models, self.targets, self.known, 2, fed)

    def test_each_client_trains_as_in_local_training(self) -> None:
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
        means, owned = common_head.upload_means(fed, models, 9)
        assert means.shape == (5, toy.CLASSES, 9)
        labels = [client.train.labels.tolist() for client in fed.clients]
        assert owned.tolist() == [[label in own for label in range(toy.CLASSES)] for own in labels]
        some = common_head.upload_means(fed, {20: models[20], 7: models[7]}, 9)
        assert toy.same(some, (means[[4, 1]], owned[[4, 1]]))
