"""ε of differentially private training: the accountant's, published values, and what it counts."""

import math
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import privacy
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.core.settings import Privacy
from ktpfl_pipeline.tracking import round_metrics


@pytest.fixture(scope="module")
def accountants() -> Any:
    """Opacus's accountants, imported here: that takes seconds, and would in each process that collects the tests."""
    from opacus import accountants

    return accountants


class TestEpsilon:
    """What the steps cost."""

    @pytest.mark.parametrize(("sigma", "share", "steps"), [(1.1, 1 / 235, 300), (0.7, 0.25, 12), (4.0, 1.0, 7)])
    def test_it_is_the_accountants(self, accountants: Any, sigma: float, share: float, steps: int) -> None:
        accountant = accountants.RDPAccountant()
        for _ in range(steps):
            accountant.step(noise_multiplier=sigma, sample_rate=share)
        found = privacy.epsilon(Privacy(sigma, delta=1e-4), share, steps)
        assert found == pytest.approx(accountant.get_epsilon(1e-4), rel=1e-9)

    @pytest.mark.parametrize(("sigma", "epochs", "published"), [(1.12, 60, 2.92), (1.2, 10, 1.20)])
    def test_published_values(self, accountants: Any, sigma: float, epochs: int, published: float) -> None:
        """The table in tutorials/README.md of TensorFlow Privacy: 60,000 images, batches of 256, δ = 1e-5.

        Its conversion to ε is the older one, rdp + log(1/δ) / (α - 1); ours is tighter.
        """
        steps, share = epochs * 60_000 // 256, 256 / 60_000
        orders = torch.tensor(accountants.RDPAccountant.DEFAULT_ALPHAS, dtype=torch.float64)
        rdp = torch.from_numpy(privacy._of_one_step(sigma, share)) * steps
        assert float((rdp - math.log(1e-5) / (orders - 1)).min()) == pytest.approx(published, abs=0.005)
        assert 0.75 * published < privacy.epsilon(Privacy(sigma), share, steps) < published

    def test_more_noise_costs_less_and_more_steps_cost_more(self) -> None:
        by_noise = [privacy.epsilon(Privacy(sigma), 0.25, 100) for sigma in (0.01, 0.5, 1.0, 2.0, 8.0, 1e6)]
        assert by_noise == sorted(by_noise, reverse=True)
        assert by_noise[-1] < 0.11  # what the conversion itself costs at the largest order, 63
        by_steps = [privacy.epsilon(Privacy(1.0), 0.25, steps) for steps in (0, 1, 10, 100)]
        assert by_steps == sorted(by_steps)
        assert by_steps[0] == 0
        assert privacy.epsilon(Privacy(0.0), 0.25, 1) == float("inf")

    def test_it_counts_the_rounds_in_which_a_client_trained(self) -> None:
        """Batches of 8 and two epochs: 16, 17, 20, 9 and 14 images are in 2, 3, 3, 2 and 2 steps an epoch."""
        found = privacy.spent(Privacy(1.0), toy.SIZES, epochs=[6, 2, 2, 0, 2], batch_size=8)
        expected = [(2, 12), (3, 6), (3, 6), (2, 0), (2, 4)]
        assert found == [privacy.epsilon(Privacy(1.0), 1 / steps, taken) for steps, taken in expected]

    def test_the_largest_is_tracked(self) -> None:
        assert round_metrics(RoundRecord(1, [3], epsilon=[1.5, 4.0]))["privacy/epsilon"] == 4.0
        assert "privacy/epsilon" not in round_metrics(RoundRecord(1, [3]))
