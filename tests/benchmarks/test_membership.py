"""Membership inference: the attack on losses in closed form, and its two attackers on toy data."""

import math
from dataclasses import replace

import pytest
import torch
import toy
from membership import Inference, attack, infer, losses, standardized, surrogates
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.settings import Distillation, LocalTraining


def of(*values: float) -> Tensor:
    return torch.tensor(values)


class TestInfer:
    """Thresholds on losses."""

    def test_equal_losses_tell_nothing(self) -> None:
        assert infer(torch.ones(5), torch.ones(3)) == Inference(0.0, 0.5)
        assert infer(of(1, 2, 3), of(3, 1, 2)) == Inference(pytest.approx(0.0), pytest.approx(0.5))

    def test_separable_losses_tell_all(self) -> None:
        assert infer(of(0.1, 0.2, 0.0), of(0.3, 9.0)) == Inference(1.0, 1.0)

    def test_losses_the_wrong_way_round(self) -> None:
        """A threshold that takes nobody for a member is the best there is."""
        assert infer(of(3, 4), of(1, 2)) == Inference(0.0, 0.0)

    def test_by_hand(self) -> None:
        """Up to 1: 1/2 - 0; up to 2: 3/4 - 1/3; up to 3: 3/4 - 2/3. Pairs won 3 + 2½ + ½ + 3 of 12 by 1, 2, 4, 0."""
        found = infer(of(1, 2, 4, 0), of(2, 3, 4))
        assert found.advantage == pytest.approx(1 / 2)
        assert found.auc == pytest.approx((3 + 2.5 + 0.5 + 3) / 12)

    def test_only_the_order_of_losses_counts(self) -> None:
        members, others = torch.rand(2, 50, generator=torch.Generator().manual_seed(0))
        one, other = infer(members, others), infer(members.exp() * 7, others.exp() * 7)
        assert (one.advantage, one.auc) == pytest.approx((other.advantage, other.auc))
        swapped = infer(others, members)
        assert one.auc + swapped.auc == pytest.approx(1.0)

    def test_an_infinite_loss_is_the_largest(self) -> None:
        assert infer(of(1, math.inf), of(2, math.inf)) == Inference(0.5, pytest.approx(0.625))


class TestStandardized:
    """Groups whose classes differ."""

    def test_others_get_the_members_distribution(self) -> None:
        members, others = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 1])
        ours, theirs = standardized(members, others)
        assert ours.tolist() == [1, 1, 1, 1]
        assert theirs.tolist() == pytest.approx([3, 1 / 3, 1 / 3, 1 / 3])

    def test_a_class_that_one_group_has_not_counts_nothing(self) -> None:
        ours, theirs = standardized(torch.tensor([0, 2, 2]), torch.tensor([0, 1]))
        assert (ours.tolist(), theirs.tolist()) == ([1, 0, 0], [1, 0])

    def test_classes_of_different_difficulty_tell_nothing(self) -> None:
        """Losses are those of the class; members are mostly of the easy one."""
        members, others = torch.tensor([0] * 8 + [1] * 2), torch.tensor([0] * 3 + [1] * 9)
        naive = infer(members.double(), others.double())
        assert naive.advantage > 0.5
        assert infer(members.double(), others.double(), standardized(members, others)) == Inference(
            pytest.approx(0.0, abs=1e-12), pytest.approx(0.5)
        )


class TestAttackers:
    """On models that know their few training images by heart."""

    @pytest.fixture(scope="class")
    def fed(self) -> Federation:
        """Labels are drawn at random, so that nothing but memory helps."""
        made = toy.alike("linear", training=LocalTraining(60, 8, 0.5), distillation=Distillation(1, 8, 0.5))
        stream = torch.Generator().manual_seed(0)

        def drawn(images: Tensor) -> LabeledDataset:
            return LabeledDataset(images, torch.randint(0, 3, (len(images),), generator=stream))

        clients = [
            replace(client, train=drawn(client.train.inputs), test=drawn(client.test.inputs)) for client in made.clients
        ]
        return toy.again(made, clients=tuple(clients))

    def test_memory_is_found(self, fed: Federation) -> None:
        before, after = (attack(fed, models) for models in (fed.initial_models(), fed.train(fed.initial_models(), 1)))
        assert before.auc == pytest.approx(0.5, abs=0.1)
        assert after.auc > 0.8
        assert after.advantage > before.advantage + 0.2

    def test_losses_are_of_the_clients_own_images(self, fed: Federation) -> None:
        models = fed.initial_models()
        means = {n: float(values.mean()) for n, values in losses(fed, models, "test").items()}
        assert means == pytest.approx({n: found.loss for n, found in fed.evaluate(models, "test").items()}, abs=1e-6)

    def test_a_surrogate_predicts_as_the_client_does(self, fed: Federation) -> None:
        models = fed.train(fed.initial_models(), 1)
        batch = fed.public_batch(1)
        soft = soft_predictions(fed.logits(models, batch))
        made = surrogates(fed, [(batch, dict(zip(models, soft, strict=True)))], epochs=60)
        guessed = fed.logits(made, batch).argmax(dim=2)
        before = fed.logits(fed.initial_models(), batch).argmax(dim=2)
        assert (guessed == soft.argmax(dim=2)).double().mean() > 0.95
        assert (before == soft.argmax(dim=2)).double().mean() < 0.8

    def test_who_is_absent_keeps_its_surrogate(self, fed: Federation) -> None:
        batch = fed.public_batch(1)
        soft = torch.full((len(batch), 3), 1 / 3, dtype=torch.float64)
        made = surrogates(fed, [(batch, {3: soft})], epochs=1)
        assert not toy.same(made[3], fed.initial_models()[3])
        assert all(toy.same(made[n], fed.initial_models()[n]) for n in toy.IDS[1:])
