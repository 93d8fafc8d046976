"""FCCL+: similarities of public samples that agree with the clients' mean, and memory of the other classes alone."""

from dataclasses import replace
from math import log

import by_hand
import pytest
import torch
import toy
from torch import Tensor
from torch.nn.functional import normalize

from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fccl import correlation_loss
from ktpfl_pipeline.methods.fccl_plus import FCCLPlus, similarity_loss

EVERYONE = list(toy.IDS)


class TestForgotten:
    """At T = 2, where logits are T times the logarithms of what their softmax is proportional to."""

    def forgotten(self, method: FCCLPlus, now: list[float], earlier: list[float]) -> float:
        logits = (2.0 * torch.tensor([each], dtype=torch.float64).log() for each in (now, earlier))
        return float(method.forgotten(*logits, torch.tensor([0])))

    def test_by_hand(self) -> None:
        """Without class 0, p = (1/4, 3/4) and q = (1/2, 1/2), whatever the logit of class 0."""
        expected = 4.0 * (0.5 * log(0.5 / 0.25) + 0.5 * log(0.5 / 0.75))
        for own, taught in ((1.0, 1.0), (50.0, 0.1)):
            found = self.forgotten(FCCLPlus(temperature=2.0), [own, 1.0, 3.0], [taught, 2.0, 2.0])
            assert found == pytest.approx(expected)

    def test_as_the_authors_have_it(self) -> None:
        """p = (1/5, 1/5, 3/5) and q = (1/4, 1/4, 1/2): the sum over classes 1 and 2, which is below 0."""
        method = FCCLPlus(temperature=2.0, normalized=False)
        expected = 4.0 * (0.25 * log(0.25 / 0.2) + 0.5 * log(0.5 / 0.6))
        assert self.forgotten(method, [1.0, 1.0, 3.0], [1.0, 1.0, 2.0]) == pytest.approx(expected)
        assert expected < 0

    @pytest.mark.parametrize("normalized", [True, False])
    def test_only_the_authors_form_lowers_the_probability_of_the_samples_class(self, normalized: bool) -> None:
        logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        loss = FCCLPlus(normalized=normalized).forgotten(
            logits, torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0])
        )
        (slope,) = torch.autograd.grad(loss, logits)
        assert (float(slope[0, 0]) > 0.1) != normalized


def test_similarity_loss_by_hand() -> None:
    """At τ = 1/2, own rows are (1/3, 2/3), (1/2, 1/2) and (2/3, 1/3); those taught are (1/2, 1/2)."""
    own = torch.eye(3, dtype=torch.float64)
    own[0, 2] = own[2, 0] = 0.5 * log(2.0)
    taught = torch.full((3, 3), 0.4, dtype=torch.float64)
    row = 0.5 * log(0.5 * 3) + 0.5 * log(0.5 * 1.5)
    assert float(similarity_loss(own, taught, 0.5)) == pytest.approx(2 * row / 3)
    assert float(similarity_loss(own, own, 0.02)) == pytest.approx(0.0, abs=1e-12)
    assert float(similarity_loss(own[:1, :1], taught[:1, :1], 0.5)) == 0.0


def divergence(own: Tensor, taught: Tensor) -> Tensor:
    """Return the mean over rows of KL(taught ‖ own) at τ = 0.1, sample by sample."""
    rows = []
    for i in range(len(own)):
        others = [j for j in range(len(own)) if j != i]
        q, p = (torch.softmax(each[i, others] / 0.1, dim=0) for each in (taught, own))
        rows.append((q * (q / p).log()).sum())
    return torch.stack(rows).mean()


def test_alignment_is_that_of_a_plain_implementation() -> None:
    """In two epochs, each with its own mini-batches, which are those of all clients."""
    fed = toy.federation(2, architectures=("conv",), dtype="float64")
    fed = toy.again(fed, distillation=replace(fed.distillation, epochs=2))
    after, report = FCCLPlus(sharpness=0.1).round(FCCLPlus().init(fed), [3, 7], 1, fed)
    public, parts = by_hand.public_pixels(fed, 1), [*by_hand.public_batches(fed, None, 1)]
    modules = {n: by_hand.module(fed, n, report.after_local[n]).eval() for n in (3, 7)}
    with torch.no_grad():
        mean = sum(module(public) for module in modules.values()) / 2
        directions = [normalize(module[:-1](public), dim=1) for module in modules.values()]
        taught = [sum(each[part] @ each[part].T for each in directions) / 2 for part in parts]
    for n, module in modules.items():
        for part, alike in zip(parts, taught, strict=True):
            feature = module[:-1](public[part])
            own = normalize(feature, dim=1)
            loss = correlation_loss(module[-1](feature), mean[part], 0.0051)
            by_hand.descend([*module.parameters()], loss + 3.0 * divergence(own @ own.T, alike), 0.05)
        assert by_hand.differ(after.models[n], module.state_dict()) < 1e-12
        assert by_hand.differ(after.models[n], report.after_local[n]) > 1e-3
    numbers = 2 * (8**2 + 5**2)  # mini-batches of 8 and 5 samples
    expected = Traffic(4 * 13 * 3, 4 * 13 * 3, similarities_up=4 * numbers, similarities_down=4 * numbers)
    assert report.traffic == dict.fromkeys([3, 7], replace(expected, public_down=13 * 64))


def test_only_the_previous_model_teaches() -> None:
    fed, method = toy.federation(architectures=("linear",)), FCCLPlus()
    first, report = method.round(method.init(fed), EVERYONE, 1, fed)
    assert toy.same(report.after_local, fed.train(fed.initial_models(), 1))
    assert toy.same(first.previous, report.after_local)
    assert first.pretrained == {}
    _, second = method.round(first, EVERYONE, 2, fed)
    _, forgetful = FCCLPlus(memory=0.0).round(first, EVERYONE, 2, fed)
    assert toy.same(forgetful.after_local, fed.train(first.models, 2))
    assert toy.distance(second.after_local, forgetful.after_local) > 1e-3
