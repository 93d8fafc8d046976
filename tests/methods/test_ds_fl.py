"""DS-FL: the consensus of FedMD with its entropy reduced."""

import itertools
import math
from typing import Any

import pytest
import torch
import toy
from torch import Tensor

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Distillation
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.ds_fl import DSFL

EVERYONE = list(toy.IDS)


def predictions(n: int = 5) -> Tensor:
    return 2 * torch.randn(n, 20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def teacher(temperature: float, logits: Tensor, **settings: Any) -> Tensor:
    """Return what DS-FL teaches everybody where clients predict `logits`."""
    first, *rest = toy.teachers(DSFL(temperature), logits, **settings).values()
    assert all(torch.equal(first, other) for other in rest)
    return first


def entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(dim=1)


class TestEntropyReduction:
    def test_by_hand(self) -> None:
        """Means (0.6, 0.4, 0): at 0.1, softmax(6, 4, 0); at 1, softmax(0.6, 0.4, 0)."""
        p = torch.tensor([[[0.9, 0.1, 0.0]], [[0.3, 0.7, 0.0]]], dtype=torch.float64)
        for temperature, exponents in ((0.1, (6.0, 4.0, 0.0)), (1.0, (0.6, 0.4, 0.0))):
            total = sum(map(math.exp, exponents))
            found = teacher(temperature, p.clamp_min(1e-30).log(), dtype="float64")
            assert found[0].tolist() == pytest.approx([math.exp(x) / total for x in exponents], abs=1e-14)

    @pytest.mark.parametrize(
        ("temperature", "of_distillation"), [(0.05, 1.0), (0.1, 3.0), (0.5, 1.0), (0.5, 3.0), (2.0, 3.0)]
    )
    def test_sharpens_the_mean_of_probabilities(self, temperature: float, of_distillation: float) -> None:
        distillation = Distillation(epochs=1, batch_size=8, learning_rate=0.05, temperature=of_distillation)
        z = predictions()
        mean = sum(torch.softmax(own / of_distillation, dim=1) for own in z) / 5
        powers = (mean / temperature).exp()
        expected = powers / powers.sum(dim=1, keepdim=True)
        found = teacher(temperature, z, dtype="float64", distillation=distillation)
        assert torch.allclose(found, expected, rtol=0, atol=1e-13)

    def test_the_lower_the_temperature_the_less_the_entropy(self) -> None:
        entropies = [entropy(teacher(temperature, predictions())) for temperature in (0.02, 0.05, 0.1, 0.3, 1.0, 10.0)]
        assert all((less < more).all() for less, more in itertools.pairwise(entropies))

    def test_sharpens_what_is_sharp_below_1_and_flattens_above(self) -> None:
        """The paper's 0.1 takes from the entropy of an average; 1 is not the average, but nearly uniform."""
        z = predictions() + torch.tensor([3.0, 0.0, 0.0])
        mean = torch.softmax(z, dim=2).mean(dim=0)
        mean, z = mean[mean.max(dim=1).values > 0.6], z[:, mean.max(dim=1).values > 0.6]
        assert len(mean) > 5
        assert (entropy(teacher(0.1, z)) < entropy(mean)).all()
        assert (entropy(teacher(1.0, z)) > entropy(mean)).all()

    def test_the_likeliest_class_stays_the_likeliest(self) -> None:
        z = predictions()
        order = torch.softmax(z, dim=2).mean(dim=0).argsort(dim=1)
        for temperature in (0.05, 0.1, 1.0, 10.0):
            assert torch.equal(teacher(temperature, z).argsort(dim=1), order)

    def test_limits_of_the_temperature(self) -> None:
        z = predictions()
        mean = torch.softmax(z, dim=2).mean(dim=0)
        ranked = mean.sort(dim=1, descending=True).values
        clear = ranked[:, 0] - ranked[:, 1] > 0.03  # thirty temperatures
        assert clear.sum() > 10
        cold, hot = teacher(0.001, z), teacher(1e9, z)
        certain = torch.nn.functional.one_hot(mean.argmax(dim=1), 3).double()
        assert torch.allclose(cold[clear], certain[clear], rtol=0, atol=1e-12)
        assert torch.isfinite(cold).all()
        assert torch.allclose(hot, torch.full_like(hot, 1 / 3), rtol=0, atol=1e-9)

    def test_where_nothing_is_preferred_nothing_is_sharpened(self) -> None:
        found = teacher(0.1, torch.zeros(3, 4, 3))
        assert torch.allclose(found, torch.full_like(found, 1 / 3), rtol=0, atol=1e-15)

    def test_is_of_the_cohort_only(self) -> None:
        z = predictions()
        one = toy.teachers(DSFL(), z, cohort=[3, 20])
        z[1:4] *= 9
        other = toy.teachers(DSFL(), z, cohort=[3, 20])
        assert toy.same(one, other)
        assert list(one) == [3, 20]


@pytest.mark.parametrize("cohort", [EVERYONE, [20, 3, 11], [12]], ids=["all", "three", "one"])
def test_a_round_step_by_step(cohort: list[int]) -> None:
    fed = toy.federation(distillation=Distillation(epochs=2, batch_size=6, learning_rate=0.05, temperature=2.0))
    before, _ = DSFL().round(DSFL().init(fed), EVERYONE, 1, fed)
    after, report = DSFL(temperature=0.2).round(before, cohort, 2, fed)
    trained = fed.train({n: before.models[n] for n in cohort}, 2)
    soft = [torch.softmax(z.double() / 2.0, dim=1) for z in fed.logits(trained, fed.public_batch(2))]
    consensus = torch.softmax(sum(soft) / len(cohort) / 0.2, dim=1)
    expected = fed.distill(trained, consensus.expand(len(cohort), -1, -1), fed.public_batch(2), 2)
    assert toy.distance({n: after.models[n] for n in cohort}, expected) < 1e-6
    assert toy.distance(expected, trained) > 1e-3  # alone, one is taught too: one's own prediction, sharpened
    assert toy.same(report.after_local, trained)
    assert report.coefficients is None


def test_sharp_teachers_make_sharp_students() -> None:
    """The mean entropy of predictions on the public set after three rounds."""
    found = []
    for temperature in (0.1, 1.0):
        fed = toy.federation()
        run = engine.run(DSFL(temperature), fed, Schedule(rounds=3))
        soft = torch.softmax(fed.logits(run.state.models, torch.arange(24)), dim=2)
        found.append(float(entropy(soft.flatten(0, 1)).mean()))
    assert found[0] < found[1]


def test_bytes_are_fedmds() -> None:
    """13 public samples of 64 pixels and three classes."""
    fed = toy.federation()
    _, report = DSFL().round(DSFL().init(fed), [7, 12], 1, fed)
    expected = Traffic(predictions_up=156, predictions_down=156, public_down=832)
    assert report.traffic == {7: expected, 12: expected}


def test_the_default_is_the_papers() -> None:
    assert create("ds_fl") == DSFL(temperature=0.1)
    create("ds_fl", {"temperature": 0.001})
