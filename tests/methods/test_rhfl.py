"""RHFL: clients whose losses are low and fall fast teach more, and labels that may be false."""

from math import exp, log

import by_hand
import pytest
import torch
import toy
from torch.nn.functional import kl_div, log_softmax, softmax

from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.rhfl import RHFL

EVERYONE = list(toy.IDS)


def test_reverse_cross_entropy_by_hand() -> None:
    """-log 10⁻⁴ times the mean probability of other classes."""
    logits = torch.tensor([[0.0, log(2.0), 0.0], [log(2.0), 0.0, 0.0]], dtype=torch.float64)
    others = (1 / 2 + 3 / 4) / 2  # of (1/4, 1/2, 1/4) without class 1, and of (1/2, 1/4, 1/4) without class 2
    found = RHFL(0.0, 1.0).symmetric(logits.sum(), logits, torch.tensor([1, 2]))
    assert float(found) == pytest.approx(4 * log(10.0) * others)


class TestWeights:
    def weights(
        self, before: list[float], now: list[float], trust: float = 0.5
    ) -> tuple[list[list[float]], list[float]]:
        given = (torch.tensor(each, dtype=torch.float64) for each in (before, now))
        mixture, sums = RHFL(trust=trust).weights(*given)
        return mixture.tolist(), sums.tolist()

    def test_by_hand(self) -> None:
        """F = (1, 1/2, 0): the first halves its loss, the third has no earlier one. W is the softmax of η F / Σ F."""
        powers = [exp(0.5 * share) for share in (2 / 3, 1 / 3, 0)]
        a, b, c = (power / sum(powers) for power in powers)
        mixture, sums = self.weights([2.0, 3.0, 0.0], [1.0, 2.0, 4.0])
        assert sums == pytest.approx([1 - a, 1 - b, 1 - c])
        rows = [[0, b / (b + c), c / (b + c)], [a / (a + c), 0, c / (a + c)], [a / (a + b), b / (a + b), 0]]
        assert [value for row in mixture for value in row] == pytest.approx([value for row in rows for value in row])
        assert a > b > c

    def test_the_first_round_weighs_all_others_alike(self) -> None:
        mixture, sums = self.weights([0.0] * 3, [1.0, 2.0, 4.0])
        assert mixture == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
        assert sums == [1.0] * 3

    def test_without_trust_later_rounds_do_too(self) -> None:
        mixture, sums = self.weights([2.0, 3.0, 1.0], [1.0, 2.0, 4.0], trust=0.0)
        assert [pytest.approx(row) for row in mixture] == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
        assert sums == pytest.approx([2 / 3] * 3)

    @pytest.mark.parametrize("before", [0.0, 3.0])
    def test_one_client_alone_teaches_itself(self, before: float) -> None:
        assert self.weights([before], [1.0])[0] == [[1.0]]


def test_two_rounds_are_those_of_a_plain_implementation() -> None:
    """Each pair of clients has its own divergence, weighted by the teacher's W, as in the paper."""
    fed, method, cohort = toy.federation(architectures=("linear",), dtype="float64"), RHFL(), [3, 7, 12]
    state, losses = method.init(fed), dict.fromkeys(cohort, 0.0)
    for t in (1, 2):
        after, report = method.round(state, cohort, t, fed)
        public, soft, now = by_hand.public_pixels(fed, t), {}, {}
        for n in cohort:
            module, samples = by_hand.module(fed, n, state.models[n]), fed.by_id[n].train
            images = by_hand.pixels(samples)
            for batch in by_hand.batches(fed, n, t):
                loss = symmetric(module(images[batch]), samples.labels[batch])
                by_hand.descend(list(module.parameters()), loss, fed.training.learning_rate)
            assert by_hand.differ(report.after_local[n], module.state_dict()) < 1e-12
            now[n] = float(symmetric(module(images), samples.labels).detach())
            soft[n] = softmax(module(public), dim=1).detach()
        gains = {n: (losses[n] - now[n]) / now[n] for n in cohort}
        powers = {n: exp(0.5 * gains[n] / sum(gains.values())) for n in cohort}
        weights = {n: 0.5 if t == 1 else powers[n] / sum(powers.values()) for n in cohort}
        for n in cohort:
            module = by_hand.module(fed, n, report.after_local[n])
            for part in by_hand.public_batches(fed, n, t):
                given = log_softmax(module(public[part]), dim=1)
                pairs = [weights[m] * kl_div(given, soft[m][part], reduction="batchmean") for m in cohort if m != n]
                by_hand.descend(list(module.parameters()), sum(pairs), fed.distillation.learning_rate)
            assert by_hand.differ(after.models[n], module.state_dict()) < 1e-12
            assert by_hand.differ(after.models[n], report.after_local[n]) > 1e-4
        assert after.losses[fed.rows(cohort)].tolist() == pytest.approx([now[n] for n in cohort])
        assert report.coefficients is not None
        state, losses = after, now
    assert state.losses[fed.rows([11, 20])].tolist() == [0.0, 0.0]


def symmetric(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    p = softmax(logits, dim=1)
    own = p[torch.arange(len(labels)), labels]
    return (-0.1 * own.log() + 4 * log(10.0) * (1 - own)).mean()


def test_with_the_plain_loss_local_training_is_that_of_other_methods() -> None:
    """Bit for bit."""
    fed, method = toy.federation(), RHFL(cross_entropy=1.0, reverse=0.0)
    _, report = method.round(method.init(fed), EVERYONE, 1, fed)
    _, other = FedMD().round(FedMD().init(fed), EVERYONE, 1, fed)
    assert toy.same(report.after_local, other.after_local)
    assert report.traffic[3] == other.traffic[3] + Traffic(coefficients_up=4)  # a loss
