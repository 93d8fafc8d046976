"""What is found of weights that were trained: whether they are numbers."""

import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from ktpfl_pipeline.core.client.outcome import Outcome, checked

LOSS = torch.tensor(0.5)


class TestChecked:
    WEIGHTS: ClassVar[dict[str, Tensor]] = {"w": torch.full((3, 2), 1e30), "counter": torch.tensor(7)}

    @pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
    def test_one_number_is_enough(self, number: float) -> None:
        broken = {**self.WEIGHTS, "w": torch.tensor([1.0, number, 2.0])}
        for value in (broken, (self.WEIGHTS, broken), (self.WEIGHTS, (torch.ones(2), broken["w"]))):
            assert not checked(Outcome(value, LOSS)).finite

    def test_large_numbers_are_numbers(self) -> None:
        """Whose squares would overflow."""
        assert checked(Outcome((self.WEIGHTS, ()), LOSS)).finite

    def test_what_was_not_trained_is_not_looked_at(self) -> None:
        outcome = Outcome(torch.tensor(math.nan))
        assert checked(outcome) is outcome
