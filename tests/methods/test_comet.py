"""COMET: who is in whose cluster, and that one's teacher is the average of one's own."""

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Distillation
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.comet import COMET, k_means
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.local import Local

EVERYONE = list(toy.IDS)


def cloud(n: int, seed: int = 0, d: int = 4) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def groups(member: Tensor) -> list[list[int]]:
    """Return the rows of each cluster, in any order of the clusters."""
    return sorted(column.nonzero()[:, 0].tolist() for column in member.T)


def line(*points: float) -> Tensor:
    return torch.tensor(points, dtype=torch.float64)[:, None]


class TestKMeans:
    def test_by_hand(self) -> None:
        """The mean is 5.75, the nearest point 10; the farthest from it is 0."""
        member = k_means(line(0, 1, 10, 12), 2)
        assert member.tolist() == [[0, 1], [0, 1], [1, 0], [1, 0]]

    def test_centers_move_until_no_client_changes_its_cluster(self) -> None:
        """From 5 and 0, 3 is first 5's, until the centres are 25/4 and 1."""
        assert k_means(line(0, 2, 3, 5, 8, 9), 2)[:, 1].tolist() == [1, 1, 1, 0, 0, 0]

    @pytest.mark.parametrize("clusters", [1, 2, 3, 5])
    def test_each_client_is_in_the_cluster_with_the_nearest_mean(self, clusters: int) -> None:
        for seed in range(10):
            points = cloud(12, seed)
            member = k_means(points, clusters)
            assert member.shape == (12, clusters)
            assert set(member.flatten().tolist()) <= {0.0, 1.0}
            assert (member.sum(dim=1) == 1).all()
            taken = member[:, member.sum(dim=0) > 0]
            distances = torch.cdist(points, taken.T @ points / taken.sum(dim=0)[:, None])
            assert (distances.min(dim=1).values - (distances * taken).sum(dim=1)).abs().max() < 1e-12

    def test_is_repeatable_and_draws_nothing(self) -> None:
        before = toy.global_generators()
        one, other = (k_means(cloud(20), 5) for _ in range(2))
        assert torch.equal(one, other)
        assert toy.same(toy.global_generators(), before)

    def test_the_order_of_points_does_not_matter(self) -> None:
        for seed in range(10):
            points, order = cloud(15, seed), torch.randperm(15, generator=torch.Generator().manual_seed(seed))
            member, permuted = k_means(points, 4), k_means(points[order], 4)
            assert torch.equal(permuted, member[order])

    def test_far_groups_are_found(self) -> None:
        home = torch.arange(12) % 3
        points = 0.3 * cloud(12, d=2) + 10 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()[home]
        assert groups(k_means(points, 3)) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]

    def test_with_enough_clusters_each_has_one_client(self) -> None:
        for clusters in (6, 7, 100):
            member = k_means(cloud(6), clusters)
            assert torch.equal(member @ member.T, torch.eye(6, dtype=torch.float64)), clusters
            assert member.shape == (6, 6), clusters

    def test_one_cluster_holds_everyone(self) -> None:
        assert torch.equal(k_means(cloud(6), 1), torch.ones(6, 1, dtype=torch.float64))

    def test_equal_points_are_together(self) -> None:
        for clusters in (1, 2, 4):
            together = k_means(cloud(1).expand(4, -1), clusters)
            assert torch.equal(together @ together.T, torch.ones(4, 4, dtype=torch.float64)), clusters

    def test_a_cluster_may_be_empty(self) -> None:
        """Three clusters of points at two places: the third center equals one of the first two and gets no points."""
        assert k_means(line(0, 0, 5), 3).tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]

    def test_the_points_given_are_left_as_they_were(self) -> None:
        points = cloud(9)
        k_means(points, 3)
        assert torch.equal(points, cloud(9))


class TestLimits:
    def test_one_cluster_is_fedmd(self) -> None:
        """Bit for bit where all take part: 1/5 is FedMD's coefficient too."""
        schedule = Schedule(rounds=3)
        one, fedmd = (engine.run(method, toy.federation(), schedule) for method in (COMET(clusters=1), FedMD()))
        assert toy.same(one.state.models, fedmd.state.models)
        assert [record.loss for record in one.history] == [record.loss for record in fedmd.history]
        assert torch.equal(one.coefficients, torch.full((3, 5, 5), 0.2))

    def test_one_cluster_is_fedmd_in_a_cohort(self) -> None:
        """1/3 and 0.2 / 0.6 may round differently: the tolerance of three rounds in float64."""
        schedule = Schedule(rounds=3, participation=0.6)
        methods = (COMET(clusters=1), FedMD())
        one, fedmd = (engine.run(method, toy.federation(dtype="float64"), schedule) for method in methods)
        assert toy.distance(one.state.models, fedmd.state.models) < 1e-12

    @pytest.mark.parametrize("clusters", [5, 9])
    def test_a_cluster_each_is_local_training(self, clusters: int) -> None:
        """Everybody's teacher is its own prediction, which has no gradient: float64."""
        fed, method = toy.federation(dtype="float64"), COMET(clusters)
        after, report = method.round(method.init(fed), EVERYONE, 1, fed)
        alone, _ = Local().round(Local().init(fed), EVERYONE, 1, fed)
        assert toy.distance(after.models, alone.models) < 1e-14
        assert torch.equal(report.coefficients, torch.eye(5, dtype=torch.float64))
        fewer, _ = COMET(clusters=4).round(method.init(fed), EVERYONE, 1, fed)
        assert toy.distance(fewer.models, alone.models) > 1e-5


class TestRound:
    def test_two_camps_teach_themselves(self) -> None:
        """3, 11 and 20 agree, 7 and 12 agree: by hand, at T = 2, whatever their architectures."""
        logits = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [6.0, 1.0, 0.0]])
        distillation = Distillation(epochs=1, batch_size=8, learning_rate=0.05, temperature=2.0)
        taught = toy.teachers(COMET(clusters=2), logits[:, None], distillation=distillation)
        soft = torch.softmax(logits.double() / 2.0, dim=1)
        for camp, rows in (((3, 11, 20), [0, 2, 4]), ((7, 12), [1, 3])):
            for n in camp:
                assert torch.allclose(taught[n][0], soft[rows].mean(dim=0), rtol=0, atol=1e-15)

    @pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11], [12]], ids=["all", "three", "one"])
    def test_step_by_step(self, cohort: list[int]) -> None:
        """Clusters of the cohort's predictions of all samples and classes at once, afresh each round."""
        distillation = Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0)
        fed, method = toy.federation(distillation=distillation), COMET(clusters=2)
        before, _ = method.round(method.init(fed), EVERYONE, 1, fed)
        after, report = method.round(before, cohort, 2, fed)
        trained = fed.train({n: before.models[n] for n in cohort}, 2)
        soft = torch.softmax(fed.logits(trained, fed.public_batch(2)).double() / 2.0, dim=2)
        cluster = k_means(soft.reshape(len(cohort), 13 * 3), 2).argmax(dim=1).tolist()
        expected = torch.eye(5, dtype=torch.float64)
        teachers = []
        for row, n in enumerate(cohort):
            mates = [other for other, of in enumerate(cluster) if of == cluster[row]]
            teachers.append(sum(soft[other] for other in mates) / len(mates))
            expected[EVERYONE.index(n)] = 0
            expected[EVERYONE.index(n), [EVERYONE.index(cohort[other]) for other in mates]] = 1 / len(mates)
        distilled = fed.distill(trained, torch.stack(teachers), fed.public_batch(2), 2)
        assert toy.distance({n: after.models[n] for n in cohort}, distilled) < 1e-6
        assert torch.allclose(report.coefficients, expected, rtol=0, atol=1e-15)
        assert toy.same(report.after_local, trained)

    def test_bytes_are_fedmds(self) -> None:
        """13 public samples of 64 pixels and three classes."""
        fed = toy.federation()
        _, report = COMET().round(COMET().init(fed), [7, 12], 1, fed)
        expected = Traffic(predictions_up=156, predictions_down=156, public_down=832)
        assert report.traffic == {7: expected, 12: expected}


def test_the_default() -> None:
    assert create("comet") == COMET(clusters=None, share=0.75)


def test_clusters_are_three_quarters_of_the_cohort() -> None:
    """Rounded up: 4 of 5 clients, 3 of 3; predictions that all differ make as many clusters."""
    fed, method = toy.federation(), COMET()
    for cohort, clusters in ((EVERYONE, 4), (EVERYONE[:3], 3), (EVERYONE[:1], 1)):
        _, report = method.round(method.init(fed), cohort, 1, toy.again(fed))
        rows = fed.rows(cohort)
        assert len(set(map(tuple, report.coefficients[rows].tolist()))) == clusters
