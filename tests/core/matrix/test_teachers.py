"""Teachers are distributions, mixed row by row."""

import math

import pytest
import torch
import toy
from matrices import predictions, simplex_rows

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.matrix.blocks import uniform
from ktpfl_pipeline.core.matrix.teachers import check_teachers, mix_logits, mix_teachers, soft_predictions


class TestTeachers:
    def test_equal_weights_give_the_average(self) -> None:
        soft = predictions(7, 30, 5)
        teachers = mix_teachers(uniform(7), soft)
        assert torch.allclose(teachers, soft.mean(dim=0).expand_as(soft), rtol=0, atol=1e-15)

    def test_row_is_the_student(self) -> None:
        soft = predictions(3, 4, 2)
        c = torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75], [0.0, 0.0, 1.0]], dtype=torch.float64)
        teachers = mix_teachers(c, soft)
        assert torch.equal(teachers[0], soft[1])
        assert torch.allclose(teachers[1], 0.25 * soft[0] + 0.75 * soft[2], rtol=0, atol=1e-15)
        assert torch.equal(teachers[2], soft[2])

    def test_are_distributions(self) -> None:
        teachers = mix_teachers(simplex_rows(6), predictions(6, 30, 5))
        assert torch.allclose(teachers.sum(dim=2), torch.ones(6, 30, dtype=torch.float64), rtol=0, atol=1e-14)

    def test_temperature_divides_the_logits(self) -> None:
        logits = torch.tensor([[[math.log(9.0), 0.0]]], dtype=torch.float32)
        assert soft_predictions(logits).tolist()[0][0] == pytest.approx([0.9, 0.1], abs=1e-7)
        assert soft_predictions(logits, 2.0).tolist()[0][0] == pytest.approx([0.75, 0.25], abs=1e-7)
        assert soft_predictions(logits).dtype == torch.float64

    def test_mixed_logits_give_the_geometric_mean(self) -> None:
        """(0.9 · 0.5)^½ to (0.1 · 0.5)^½ is 3 to 1, whatever constants are added to the logits of a sample."""
        logits = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]], dtype=torch.float64).log() + torch.tensor(
            [[[4.0]], [[-7.0]]]
        )
        expected = torch.tensor([0.75, 0.25], dtype=torch.float64)
        assert torch.allclose(mix_logits(uniform(2), logits), expected.expand(2, 1, 2), rtol=0, atol=1e-14)

    def test_mixed_logits_are_distributions_and_an_own_row_is_the_own_prediction(self) -> None:
        c, logits = simplex_rows(6), predictions(6, 30, 5).log()
        check_teachers(mix_logits(c, logits), range(6))
        own = torch.eye(6, dtype=torch.float64)
        assert torch.allclose(mix_logits(own, logits, 3.0), soft_predictions(logits, 3.0), rtol=0, atol=1e-15)


class TestCheckTeachers:
    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ([0.5, 0.5, 0.5], "sums to 1.5, and its least value is 0.5"),
            ([1.5, -0.5, 0.0], "sums to 1, and its least value is -0.5"),
            ([float("nan"), 0.5, 0.5], "sums to nan, and its least value is nan"),
            ([float("inf"), 0.0, 0.0], "sums to inf, and its least value is 0"),
            ([0.0, 0.0, 0.0], "sums to 0, and its least value is 0"),
        ],
    )
    def test_names_the_student_and_what_its_teacher_is(self, row: list[float], said: str) -> None:
        soft = torch.full((3, 4, 3), 1 / 3)
        soft[1, 2] = torch.tensor(row)
        with pytest.raises(InputError) as refusal:
            check_teachers(soft, [3, 7, 11])
        assert f"The teacher of 7 is not a distribution on public sample 2 of the batch (it {said})" in str(
            refusal.value
        )

    def test_of_all_alike(self) -> None:
        with pytest.raises(InputError, match=r"The teacher of lenet is not a distribution on public sample 0"):
            check_teachers(torch.full((4, 3), 1.0), ["lenet"])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_rounding_is_no_offence(self, dtype: torch.dtype) -> None:
        soft = soft_predictions(torch.randn(20, 30, 62, generator=torch.Generator().manual_seed(0)) * 9)
        mixed = mix_teachers(torch.softmax(torch.randn(20, 20, dtype=torch.float64), dim=1), soft)
        rounded = mixed.to(dtype)
        assert (rounded.sum(dim=-1) != 1).any()
        check_teachers(rounded, range(20))

    def test_nobody_is_taught_by_one(self) -> None:
        fed = toy.federation()
        teachers = torch.full((5, 13, 3), 1 / 3)
        teachers[4] *= 2
        with pytest.raises(InputError, match=r"The teacher of 20 is not a distribution"):
            fed.distill(fed.initial_models(), teachers, fed.public_batch(1), 1)
