"""Mutual learning: both models of a client, each of which teaches the other."""

import copy

import pytest
import torch
import torch.nn.functional as F
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.core.weights import Models, Params
from ktpfl_pipeline.methods.fml import FML
from ktpfl_pipeline.methods.shared import mutual

FOUR = (*toy.ARCHITECTURES, "both")


def run(
    fed: Federation,
    models: Models,
    common: Params,
    architecture: str,
    alpha: float = 0.5,
    beta: float = 0.5,
    t: int = 1,
) -> tuple[Models, Models]:
    method, pairs = FML(architecture, alpha, beta), (models, dict.fromkeys(models, common))
    trained, copies = fed.train_together(mutual.train_pair, pairs, t, method.architecture(fed), method.loss)
    return trained, copies


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of logits, from its definition, averaged over images."""
    p, q = torch.softmax(teacher, dim=1), torch.softmax(student, dim=1)
    return (p * (p.log() - q.log())).sum(dim=1).mean()


class TestOneStep:
    """One batch of all of client 3's 16 images: SGD with autograd, on each model's own loss."""

    fed = toy.federation(
        1,
        architectures=("linear",),
        dtype="float64",
        training=LocalTraining(epochs=1, batch_size=100, learning_rate=0.1),
    )

    def by_autograd(self, own: Params, common: Params, alpha: float, beta: float) -> tuple[Params, Params, float]:
        client = self.fed.clients[0]
        images, labels = client.train.inputs.double() / 127.5 - 1, client.train.labels
        modules = [toy.build(name).double() for name in ("linear", "conv")]
        for module, params in zip(modules, (own, common), strict=True):
            module.load_state_dict(params)
        mine, theirs = (module.train()(images) for module in modules)
        losses = (
            alpha * F.cross_entropy(mine, labels) + (1 - alpha) * kl(theirs.detach(), mine),
            beta * F.cross_entropy(theirs, labels) + (1 - beta) * kl(mine.detach(), theirs),
        )
        for module, loss in zip(modules, losses, strict=True):
            gradients = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
            with torch.no_grad():
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter.sub_(0.1 * gradient)
        return dict(modules[0].state_dict()), dict(modules[1].state_dict()), sum(losses).item()

    @pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (0.2, 0.9), (1.0, 0.0), (0.0, 1.0)])
    def test_is_that_of_autograd(self, alpha: float, beta: float) -> None:
        own, common = self.fed.initial_model("linear"), self.fed.initial_model("conv")
        trained, copies = run(self.fed, {3: own}, common, "conv", alpha, beta)
        mine, theirs, loss = self.by_autograd(own, common, alpha, beta)
        assert toy.distance({3: trained[3]}, {3: mine}) < 1e-13
        assert toy.distance({3: copies[3]}, {3: theirs}) < 1e-13
        assert copies[3]["1.num_batches_tracked"] == 1
        assert self.fed.current.losses["train"] == {3: pytest.approx(loss, abs=1e-13)}
        assert toy.distance({3: trained[3]}, {3: own}) > 1e-3
        assert toy.distance({3: copies[3]}, {3: common}) > 1e-3


class TestLimits:
    def test_with_only_labels_the_own_model_is_local_training(self) -> None:
        """alpha = 1, bit for bit: neither the companion's dropout nor its BatchNorm disturbs the own model."""
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        alone = fed.train(models, 1)
        for architecture in FOUR:  # for one client each, two modules of one architecture at a time
            trained, _ = run(fed, models, fed.initial_model(architecture), architecture, alpha=1.0)
            assert toy.same(trained, alone)

    def test_and_hears_the_companion_otherwise(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models = fed.initial_models()
        trained, _ = run(fed, models, fed.initial_model("linear"), "linear", alpha=0.9)
        alone = fed.train(models, 1)
        assert not any(toy.same(trained[n], alone[n]) for n in toy.IDS)

    def test_with_only_labels_the_copy_does_not_depend_on_the_own_model(self) -> None:
        """beta = 1: the copy is the same, whatever the own model is."""
        fed = toy.federation(1)
        common = fed.initial_model("mlp")
        copies = [run(fed, {3: own}, common, "mlp", beta=1.0)[1][3] for own in (self.linear(0.0), self.linear(1.0))]
        assert toy.same(*copies)
        heard = [run(fed, {3: own}, common, "mlp", beta=0.5)[1][3] for own in (self.linear(0.0), self.linear(1.0))]
        assert not toy.same(*heard)

    @staticmethod
    def linear(weight: float) -> Params:
        return {"1.weight": torch.full((3, 64), weight).tril(), "1.bias": torch.zeros(3)}

    def test_twins_do_not_teach_each_other(self) -> None:
        """Equal models without dropout stay equal, and the KL between them has no gradient: half the step of CE."""
        fed = toy.federation(1, architectures=("linear",), dtype="float64")
        start = fed.initial_models()
        trained, copies = run(fed, start, start[3], "linear", alpha=0.5, beta=0.5)
        assert toy.distance(trained, copies) < 1e-13
        half = toy.again(fed, training=LocalTraining(epochs=2, batch_size=8, learning_rate=0.05))
        assert toy.distance(trained, half.train(start, 1)) < 1e-13

    def test_no_epochs_no_change(self) -> None:
        fed = toy.federation(training=LocalTraining(epochs=0))
        models, common = fed.initial_models(), fed.initial_model("mlp")
        trained, copies = run(fed, models, common, "mlp")
        assert toy.same(trained, models)
        assert toy.same(copies, dict.fromkeys(toy.IDS, common))


class TestPurity:
    def test_every_client_has_a_separate_copy(self) -> None:
        fed = toy.federation()
        models, common = fed.initial_models(), fed.initial_model("conv")
        before = copy.deepcopy((models, common))
        trained, copies = run(fed, models, common, "conv")
        assert list(trained) == list(copies) == list(toy.IDS)
        assert toy.same((models, common), before)
        assert not any(toy.same(copies[n], copies[m]) for n in toy.IDS for m in toy.IDS if n < m)
        for n in toy.IDS:
            assert trained[n].keys() == models[n].keys()
            assert copies[n].keys() == common.keys()

    def test_neither_other_clients_nor_the_past_change_anything(self) -> None:
        fed = toy.federation(architectures=FOUR)
        models, common = fed.initial_models(), fed.initial_model("both")
        together = run(fed, models, common, "both")
        generators = toy.global_generators()
        for n in (20, 3, 12):
            own, copied = run(fed, {n: models[n]}, common, "both")
            assert toy.same((own[n], copied[n]), (together[0][n], together[1][n]))
        assert toy.same(toy.global_generators(), generators)

    def test_the_copys_dropout_differs_by_step_client_and_round(self) -> None:
        masks: list[Tensor] = []

        def build(name: str) -> nn.Module:
            dropout = nn.Dropout(0.5)
            if name == "common":
                dropout.register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
            return nn.Sequential(nn.Flatten(), dropout, nn.Linear(64, toy.CLASSES))

        fed = toy.federation(2, build=build, training=LocalTraining(epochs=2, batch_size=100, learning_rate=0.1))
        fed.facts("common")  # found by running the model, in which dropout draws too
        masks.clear()
        for t in (1, 2):
            run(fed, fed.initial_models(), fed.initial_model("common"), "common", t=t)
        first = {tuple(mask[0].tolist()) for mask in masks}  # of the first image of each batch: no pixel is 0 itself
        assert len(masks) == len(first) == 2 * 2 * 2


class TestClients:
    def test_pairs_come_apart_by_client(self) -> None:
        fed = toy.federation()
        models, common = fed.train(fed.initial_models(), 1), fed.initial_model("mlp")
        own, copies = run(fed, models, common, "mlp", 0.3, 0.6, t=2)
        assert list(own) == list(copies) == list(models)
        for n in (20, 7):
            one, copied = run(fed, {n: models[n]}, common, "mlp", 0.3, 0.6, t=2)
            assert toy.same((one[n], copied[n]), (own[n], copies[n]))

    def test_alpha_is_the_own_models_and_beta_the_common_ones(self) -> None:
        fed = toy.federation()
        models, common = fed.train(fed.initial_models(), 1), fed.initial_model("mlp")
        assert toy.same(run(fed, models, common, "mlp", 1.0, 0.5, t=2)[0], fed.train(models, 2))
        assert not toy.same(run(fed, models, common, "mlp", 0.5, 1.0, t=2)[0], fed.train(models, 2))
