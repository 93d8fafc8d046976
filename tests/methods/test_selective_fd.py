"""Selective-FD: who speaks of what, what is taught, the density ratio, and one round by hand."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import LocalTraining, Privacy
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.selective_fd import DensityRatio, SelectiveFD, familiar

EVERYONE = list(toy.IDS)


def points(number: int, seed: int, center: float = 0.0) -> Tensor:
    return center + torch.randn(number, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class TestDensityRatio:
    def test_solves_its_problem(self) -> None:
        """The gradient of 1/2 E r² - E r + λ/2 ‖r‖² is zero where λ α_j = -r(y_j) / m for every noise sample."""
        noise = points(7, 1)
        ratio = DensityRatio(points(9, 0), noise, 1.5, 0.01)
        assert torch.allclose(0.01 * ratio.alpha, -ratio(noise) / 7, rtol=1e-9, atol=1e-12)

    def test_by_numpy(self) -> None:
        known, noise, x = (points(number, number).numpy() for number in (9, 7, 4))

        def kernel(a: Any, b: Any) -> Any:
            return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2 * 1.5**2))

        alpha = -np.linalg.inv(kernel(noise, noise) / 7 + 0.1 * np.eye(7)) @ kernel(noise, known).sum(axis=1) / 6.3
        expected = kernel(x, noise) @ alpha + kernel(x, known).sum(axis=1) / 0.9
        found = DensityRatio(*map(torch.from_numpy, (known, noise)), 1.5, 0.1)(torch.from_numpy(x))
        assert found.numpy() == pytest.approx(expected, rel=1e-12)

    def test_the_density_ratio_is_high_at_samples_and_low_at_noise(self) -> None:
        ratio = DensityRatio(points(60, 0, 2.0), points(60, 1, -2.0), None, 0.01)
        assert ratio(points(20, 2, 2.0)).min() > ratio(points(20, 3, -2.0)).max()

    @pytest.mark.parametrize("number", [1, 2, 5])
    def test_of_few_and_equal_samples(self, number: int) -> None:
        ratio = DensityRatio(torch.ones(number, 3).double(), torch.zeros(number, 3).double(), None, 1e-3)
        assert ratio(points(4, 0)).isfinite().all()


def own(n: int, inputs: Tensor) -> Client:
    samples = LabeledDataset(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    return Client(n, "linear", samples, samples, samples)


class TestClientsSelector:
    def test_a_client_predicts_samples_like_its_own(self) -> None:
        """Two clients with dark and with bright images, and public ones of both kinds."""
        generator = torch.Generator().manual_seed(0)
        dark, bright = (torch.randint(low, low + 60, (40, 1, 8, 8), generator=generator) for low in (0, 180))
        public = torch.cat([dark[:5], bright[:5]]).to(torch.uint8)
        clients = own(3, dark[5:].to(torch.uint8)), own(7, bright[5:].to(torch.uint8))
        fed = toy.federation(clients=2, public=public, public_batch_size=10)
        fed = toy.again(fed, clients=clients)
        for n, mine in ((3, slice(0, 5)), (7, slice(5, 10))):
            found = familiar(Workspace(fed), n, torch.arange(10), 0.0, None, 1e-3).value
            assert found[mine].float().mean() > 0.5
            assert found.sum() == found[mine].sum()

    def test_the_higher_the_quantile_the_less_it_speaks_of(self) -> None:
        space = Workspace(toy.federation())
        found = [familiar(space, 11, torch.arange(24), q, None, 1e-3).value for q in (0.0, 0.5, 1.0)]
        assert all((more | ~less).all() for more, less in itertools.pairwise(found))

    def test_a_tenth_of_its_samples_is_held_out_of_the_estimate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known: list[Tensor] = []
        monkeypatch.setattr(
            "ktpfl_pipeline.methods.selective_fd.DensityRatio",
            lambda *given: known.append(given[0]) or DensityRatio(*given),
        )
        familiar(Workspace(toy.federation()), 11, torch.arange(24), 0.25, None, 1e-3)
        assert [len(samples) for samples in known] == [18]  # of 20

    def test_is_drawn_once_and_for_all(self) -> None:
        space = Workspace(toy.federation())
        one, other = (familiar(space, 11, torch.arange(24), 0.25, None, 1e-3).value for _ in range(2))
        assert torch.equal(one, other)


def test_is_refused_with_private_training() -> None:
    fed = toy.alike(training=LocalTraining(1, 8, 0.1, privacy=Privacy(1.0)))
    with pytest.raises(InputError, match="uses private samples in familiar, which its ε would not cover"):
        SelectiveFD().round(SelectiveFD().init(fed), EVERYONE, 1, fed)


def test_without_certain_predictions_no_client_is_taught() -> None:
    fed, method = toy.federation(), SelectiveFD(ambiguity=0.0)
    after, report = method.round(method.init(fed), EVERYONE, 1, fed)
    assert toy.same(after.models, report.after_local)
    assert {own.predictions_down for own in report.traffic.values()} == {2}  # a bit for each of 13 samples


def selected(fed: Federation, method: SelectiveFD, cohort: list[int]) -> Tensor:
    space = Workspace(fed)
    batch = fed.public_batch(1)
    given = (method.quantile, method.width, method.regularization)
    return torch.stack([familiar(space, n, batch, *given).value for n in cohort])


@pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11]], ids=["all", "three"])
def test_a_round_by_hand(cohort: list[int]) -> None:
    fed, method = toy.federation(dtype="float64"), SelectiveFD(quantile=0.25, ambiguity=0.9)
    after, report = method.round(method.init(fed), cohort, 1, fed)
    speaks, batch = selected(fed, method, cohort), fed.public_batch(1)
    trained = fed.train({n: fed.initial_models()[n] for n in cohort}, 1)
    soft = torch.softmax(fed.logits(trained, batch), dim=2)
    places, teachers = [], []
    for x in range(13):
        told = [soft[row, x] for row in range(len(cohort)) if speaks[row, x]]
        if told:
            mean = sum(told) / len(told)
            certain = torch.eye(3).double()[int(mean.argmax())]
            if float((mean - certain).abs().sum()) <= 0.9:
                places.append(x)
                teachers.append(mean)
    assert 0 < len(places) < 13
    assert 0 < int(speaks.sum()) < speaks.numel()
    teacher = torch.stack(teachers).expand(len(cohort), -1, -1)
    expected = fed.distill(trained, teacher, batch[places], 1)
    assert toy.distance({n: after.models[n] for n in cohort}, expected) < 1e-12
    for row, n in enumerate(cohort):
        assert report.traffic[n].predictions_up == 4 * 3 * int(speaks[row].sum()) + 2
        assert report.traffic[n].predictions_down == 4 * 3 * len(places) + 2
    predicted = pytest.approx(float(speaks.double().mean()))
    assert report.metrics == {"predicted_share": predicted, "taught_share": len(places) / 13}


def test_without_selection_it_is_fedmd() -> None:
    """A kernel so wide that all samples are alike."""
    fed = toy.federation(1, dtype="float64")
    fed = toy.again(fed, public=fed.clients[0].train.inputs[:13])
    everything = SelectiveFD(quantile=0.0, ambiguity=2.0, width=1e9, regularization=1e6)
    after, _ = everything.round(everything.init(fed), [3], 1, fed)
    plain, _ = FedMD().round(FedMD().init(fed), [3], 1, fed)
    assert toy.distance(after.models, plain.models) < 1e-12
