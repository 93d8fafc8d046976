"""FedProto: class means go up, their averages over those who have the class come down."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.fedproto import FedProto
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.methods.shared import common_head

EVERYONE = list(toy.IDS)


def federation(classes: dict[int, tuple[int, ...]] | None = None, **settings: Any) -> Federation:
    """Return linear clients, whose features are the 64 pixels, each with training images of its `classes` alone."""
    fed = toy.federation(**{"architectures": ("linear",), **settings})
    kept = dict.fromkeys(EVERYONE, (0, 1, 2)) | (classes or {})
    clients = (replace(client, train=only(client.train, kept[client.id])) for client in fed.clients)
    return toy.again(fed, clients=tuple(clients))


def only(samples: LabeledDataset, classes: tuple[int, ...]) -> LabeledDataset:
    return samples.take(torch.isin(samples.labels, torch.tensor(classes)).nonzero()[:, 0])


def mean_image(fed: Federation, n: int, label: int) -> Tensor:
    """Return the mean of client n's training images of a class, pixels from -1 to 1, (64,)."""
    train = fed.by_id[n].train
    return (train.inputs[train.labels == label].double().flatten(1) / 127.5 - 1).mean(dim=0)


class TestPrototypes:
    def test_are_averages_of_class_means_over_owners(self) -> None:
        """By hand: client 3 has no class 1, and client 7 is the only one with class 2. Each owner counts once."""
        fed = federation({3: (0,), 7: (0, 1, 2), 11: (0, 1)})
        after, _ = FedProto(dimension=64).round(FedProto(dimension=64).init(fed), [3, 7, 11], 1, fed)
        owners = {0: (3, 7, 11), 1: (7, 11), 2: (7,)}
        for label, clients in owners.items():
            expected = sum(mean_image(fed, n, label) for n in clients) / len(clients)
            assert torch.allclose(after.prototypes[label], expected, rtol=0, atol=1e-6)
        assert after.known.tolist() == [True, True, True]
        assert after.prototypes.dtype == torch.float64

    def test_prototypes_of_a_class_without_owner_are_zero_and_unknown(self) -> None:
        fed = federation(dict.fromkeys(EVERYONE, (0, 2)))
        after, _ = FedProto(dimension=64).round(FedProto(dimension=64).init(fed), EVERYONE, 1, fed)
        assert after.known.tolist() == [True, False, True]
        assert after.prototypes[1].tolist() == [0.0] * 64

    def test_of_a_class_outside_the_cohort_stay_as_they_were(self) -> None:
        fed = federation({3: (0, 1), 7: (0,), 11: (0,)})
        first, _ = FedProto(dimension=64).round(FedProto(dimension=64).init(fed), [3, 7], 1, fed)
        assert first.known.tolist() == [True, True, False]
        second, _ = FedProto(dimension=64).round(first, [7, 11], 2, fed)
        assert second.known.tolist() == [True, True, False]
        assert torch.equal(second.prototypes[1], first.prototypes[1])
        expected = (mean_image(fed, 7, 0) + mean_image(fed, 11, 0)) / 2  # of this cohort alone
        assert torch.allclose(second.prototypes[0], expected, rtol=0, atol=1e-6)

    def test_come_after_the_training_of_the_same_round(self) -> None:
        """Features of the mlp are its twelve hidden units, in eval mode."""
        fed, method = federation(architectures=("mlp",), dtype="float64"), FedProto(dimension=12)
        after, report = method.round(method.init(fed), [3, 11], 1, fed)
        means = []
        for n in (3, 11):
            module = toy.build("mlp").double().eval()
            module.load_state_dict(report.after_local[n])
            train = fed.by_id[n].train
            hidden = module[:-1](train.inputs.double() / 127.5 - 1).detach()
            means.append(torch.stack([hidden[train.labels == label].mean(dim=0) for label in range(3)]))
        assert torch.allclose(after.prototypes, sum(means) / 2, rtol=0, atol=1e-13)

    def test_are_shared_between_architectures(self) -> None:
        fed, method = toy.federation(), FedProto(dimension=8)
        after, report = method.round(method.init(fed), EVERYONE, 1, fed)
        means, owned = common_head.upload_means(fed, report.after_local, 8)
        assert owned.all()
        assert torch.allclose(after.prototypes, means.mean(dim=0), rtol=0, atol=1e-14)
        assert after.prototypes.shape == (3, 8)

    def test_there_are_none_at_the_start(self) -> None:
        fed = toy.federation()
        start = FedProto(dimension=5).init(fed)
        assert torch.equal(start.prototypes, torch.zeros(3, 5, dtype=torch.float64))
        assert not start.known.any()
        assert toy.same(start.models, fed.initial_models())


class TestTraining:
    def test_without_weight_it_is_local_training(self) -> None:
        """Bit for bit, over rounds with cohorts and whatever the prototypes."""
        schedule = Schedule(rounds=3, participation=0.6)
        run, alone = (
            engine.run(method, toy.federation(), schedule) for method in (FedProto(0.0, prediction="head"), Local())
        )
        assert toy.same(run.state.models, alone.state.models)
        assert [record.accuracy for record in run.history] == [record.accuracy for record in alone.history]
        assert [record.loss for record in run.history] == [record.loss for record in alone.history]
        assert run.state.prototypes.abs().max() > 0.1

    def test_the_first_round_is_local_training(self) -> None:
        """Nobody has a prototype yet."""
        fed = toy.federation()
        one, alone = (m.round(m.init(fed), EVERYONE, 1, fed)[0] for m in (FedProto(weight=100.0), Local()))
        assert toy.same(one.models, alone.models)

    def test_the_second_is_not(self) -> None:
        fed, method = toy.federation(), FedProto(weight=3.0)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        cohort = [7, 20]
        after, report = method.round(before, cohort, 2, fed)
        models = {n: before.models[n] for n in cohort}
        trained = method.train(models, before.prototypes, before.known, 2, fed)
        assert toy.same({n: after.models[n] for n in cohort}, trained)
        assert toy.same(report.after_local, trained)
        assert report.coefficients is None
        assert toy.distance(trained, fed.train(models, 2)) > 1e-3
        assert all(after.models[n] is before.models[n] for n in (3, 11, 12))

    def test_a_prototype_of_a_class_one_does_not_have_does_not_matter(self) -> None:
        fed, method = federation({7: (0, 1)}, architectures=("mlp",)), FedProto(weight=3.0)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        found = []
        for label in (2, 1):
            moved = before.prototypes.clone()
            moved[label] += 1.0
            one, _ = method.round(replace(before, prototypes=moved), [7], 2, fed)
            found.append(one.models[7])
        plain, _ = method.round(before, [7], 2, fed)
        assert toy.same(found[0], plain.models[7])
        assert not toy.same(found[1], plain.models[7])

    def test_features_of_a_class_come_together(self) -> None:
        """After the same rounds, the class means of clients are nearer to each other, the heavier the weight."""
        spreads = []
        for weight in (0.0, 1.0, 10.0):
            training = LocalTraining(epochs=4, batch_size=8, learning_rate=0.05)
            fed = toy.federation(architectures=("mlp",), training=training)
            run = engine.run(FedProto(weight, dimension=12), fed, Schedule(rounds=4))
            means, _ = common_head.upload_means(fed, run.state.models, 12)
            spreads.append(float(means.var(dim=0).mean()))
        assert spreads[0] > spreads[1] > spreads[2]


class TestTraffic:
    @pytest.mark.parametrize("dimension", [1, 7, 64])
    def test_own_classes_up_and_all_down(self, dimension: int) -> None:
        """Four bytes a number, F numbers a class: one class, two and three go up; three come down to everybody."""
        fed, method = federation({3: (1,), 7: (0, 2)}), FedProto(dimension=dimension)
        for t in (1, 2):
            _, report = method.round(method.init(fed), [7, 3, 11], t, fed)
            assert report.traffic == {
                7: Traffic(prototypes_up=2 * 4 * dimension, prototypes_down=3 * 4 * dimension),
                3: Traffic(prototypes_up=1 * 4 * dimension, prototypes_down=3 * 4 * dimension),
                11: Traffic(prototypes_up=3 * 4 * dimension, prototypes_down=3 * 4 * dimension),
            }

    def test_a_class_without_owner_is_downloaded_too(self) -> None:
        """The table of prototypes has one size: three classes of 64 numbers. New clients download it too."""
        fed, method = federation(dict.fromkeys(EVERYONE, (0, 2))), FedProto(dimension=64)
        state, report = method.round(method.init(fed), EVERYONE, 1, fed)
        assert report.traffic == dict.fromkeys(EVERYONE, Traffic(prototypes_up=2 * 256, prototypes_down=3 * 256))
        assert method.join(state, state.models, [7], fed).traffic == {7: Traffic(prototypes_down=3 * 256)}

    def test_is_counted_in_whole_bytes(self) -> None:
        fed = federation()
        _, report = FedProto(dimension=64).round(FedProto(dimension=64).init(fed), [3], 1, fed)
        assert type(report.traffic[3].knowledge_up) is int


def test_defaults_and_limits() -> None:
    assert create("fedproto") == FedProto(weight=1.0, dimension=512)
    create("fedproto", {"weight": 0.0, "dimension": 1})
