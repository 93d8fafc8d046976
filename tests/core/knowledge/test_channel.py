"""The way of one client's predictions: distributions stay so, errors are fed back, what is cached is not sent."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ktpfl_pipeline.core.knowledge.channel import Message, deliver, most_confident, noisy, transmit
from ktpfl_pipeline.core.matrix.updates import project
from ktpfl_pipeline.core.settings import Knowledge

ENCODINGS = ["float32", "float16", "uint8", "sign", "top_k"]
M, K = 12, 5


def logits(samples: int = 6, seed: int = 0, classes: int = K) -> Tensor:
    return 2 * torch.randn(samples, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def message(values: Tensor, t: int = 1, batch: Tensor | None = None, **rest: Any) -> Message:
    return Message(
        values, rest.pop("logits", True), torch.arange(len(values)) if batch is None else batch, t, M, **rest
    )


class TestTransmit:
    @pytest.mark.parametrize("name", ENCODINGS)
    def test_teachers_stay_distributions(self, name: Any) -> None:
        """Also where 256 steps and so many classes leave nothing of a sample."""
        for classes in (2, 5, 700):
            sharp = torch.softmax(torch.cat([logits(6, classes=classes) * 20, torch.zeros(2, classes)]), dim=1)
            found, size, _ = transmit(Knowledge(name, k=2), sharp, False, torch.zeros_like(sharp))
            assert size > 0
            assert found.dtype == sharp.dtype
            assert (found >= 0).all(), classes
            assert torch.allclose(found.sum(dim=1), torch.ones(8).double(), rtol=0, atol=1e-12), classes

    @pytest.mark.parametrize(("name", "off"), [("float32", 0.0), ("float16", 2e-3), ("uint8", 2e-2), ("top_k", 0.2)])
    def test_soft_predictions_are_nearly_what_they_were(self, name: Any, off: float) -> None:
        """Logits are known up to a constant of a sample, which no soft prediction sees."""
        given = logits() + 100
        found, _, _ = transmit(Knowledge(name, k=3), given, True, torch.zeros_like(given))
        error = (torch.softmax(found, dim=1) - torch.softmax(given, dim=1)).abs().max()
        assert error == 0.0 if off == 0.0 else 0 < error < off

    def test_float32_is_what_it_was_in_four_bytes_a_number(self) -> None:
        given = logits()
        found, size, lost = transmit(Knowledge(), given, True, torch.zeros_like(given))
        assert found is given
        assert size == 4 * 6 * K
        assert lost is None

    def test_nothing_is_nothing(self) -> None:
        for name in ENCODINGS:
            found, size, _ = transmit(Knowledge(name), logits(0), True, logits(0))  # type: ignore[arg-type]
            assert (found.shape, size) == ((0, K), 0)


class TestErrorFeedback:
    """One bit a class: what is lost is sent later."""

    KNOWLEDGE = Knowledge("sign")

    def rounds(self, number: int, given: Tensor) -> tuple[Tensor, Tensor]:
        """Return what arrives in each round of the same values, and what is kept at the end."""
        kept: Any = {}
        found = []
        for t in range(1, number + 1):
            delivery = deliver(self.KNOWLEDGE, message(given, t), kept)
            found.append(delivery.values)
            kept = delivery.kept
        return torch.stack(found), kept["residuals"]

    def test_what_arrived_and_what_is_kept_is_what_was_sent(self) -> None:
        given = logits()
        found, residuals = self.rounds(20, given)
        centred = given - given.mean(dim=1, keepdim=True)
        assert torch.allclose(found.sum(dim=0) + residuals[:6], 20 * centred, rtol=0, atol=1e-5)
        assert (residuals[6:] == 0).all()

    def test_the_mean_converges_and_the_error_stays_bounded(self) -> None:
        given = logits()
        centred = given - given.mean(dim=1, keepdim=True)
        few, many = (self.rounds(number, given) for number in (25, 400))
        assert (many[0].mean(dim=0) - centred).abs().max() < (few[0].mean(dim=0) - centred).abs().max() / 4
        assert (many[0].mean(dim=0) - centred).abs().max() < 0.1
        assert many[1].abs().max() < 6 * centred.abs().max()

    def test_only_what_was_sent_is_fed_back(self) -> None:
        first = deliver(self.KNOWLEDGE, message(logits(3), 1, torch.tensor([4, 0, 7])), {})
        changed = first.kept["residuals"].abs().sum(dim=1) > 0
        assert changed.nonzero().flatten().tolist() == [0, 4, 7]
        second = deliver(self.KNOWLEDGE, message(logits(1), 2, torch.tensor([9])), first.kept)
        assert torch.equal(second.kept["residuals"][:8], first.kept["residuals"][:8])

    def test_stays_while_the_cache_has_everything(self) -> None:
        """Nothing is sent in round 2; the error of round 1 is added in round 3."""
        knowledge = Knowledge("sign", cache=1)
        first = deliver(knowledge, message(logits()), {})
        second = deliver(knowledge, message(logits(), 2), first.kept)
        assert second.size == 0
        assert torch.equal(second.kept["residuals"], first.kept["residuals"])
        third = deliver(knowledge, message(logits(), 3), second.kept)
        centred = logits() - logits().mean(dim=1, keepdim=True)
        assert torch.allclose(first.values + third.values + third.kept["residuals"][:6], 2 * centred, rtol=0, atol=1e-5)

    def test_leaves_what_is_kept_as_it_was(self) -> None:
        first = deliver(self.KNOWLEDGE, message(logits()), {})
        before = first.kept["residuals"].clone()
        deliver(self.KNOWLEDGE, message(logits(), 2), first.kept)
        assert torch.equal(first.kept["residuals"], before)


class TestCache:
    KNOWLEDGE = Knowledge(cache=2)

    def test_is_sent_again_after_so_many_rounds(self) -> None:
        """Sent in round 1, it serves in 2 and 3, whatever is said by then, and is sent anew in 4."""
        kept: Any = {}
        sizes, values = [], []
        for t in range(1, 6):
            found = deliver(self.KNOWLEDGE, message(logits(seed=t), t), kept)
            kept = found.kept
            sizes.append(found.size)
            values.append(found.values)
            assert found.known.all()
        assert sizes == [4 * 6 * K, 0, 0, 4 * 6 * K, 0]
        for t, origin in enumerate((1, 1, 1, 4, 4)):
            assert torch.equal(values[t], logits(seed=origin))

    def test_only_what_is_not_there_is_sent(self) -> None:
        first = deliver(self.KNOWLEDGE, message(logits(3), 1, torch.tensor([2, 5, 8])), {})
        second = deliver(self.KNOWLEDGE, message(logits(4, seed=1), 2, torch.tensor([5, 1, 8, 0])), first.kept)
        assert second.size == 4 * 2 * K
        expected = torch.stack([logits(3)[1], logits(4, 1)[1], logits(3)[2], logits(4, 1)[3]])
        assert torch.equal(second.values, expected)

    def test_what_was_decoded_is_cached(self) -> None:
        first = deliver(Knowledge("uint8", cache=3), message(logits(), 1), {})
        second = deliver(Knowledge("uint8", cache=3), message(logits(seed=1), 2), first.kept)
        assert second.size == 0
        assert torch.equal(second.values, first.values)

    def test_without_one_nothing_is_kept(self) -> None:
        assert deliver(Knowledge("uint8"), message(logits()), {}).kept == {}

    def test_since_when_each_sample_serves(self) -> None:
        """What the client had in round 3 serves where the newest is of round 3 or before."""
        first = deliver(Knowledge(), message(logits(), 3, since=torch.zeros(6)), {})
        since = torch.tensor([1, 2, 3, 4, 5, 3])
        second = deliver(Knowledge(), message(logits(seed=1), 5, since=since), first.kept)
        assert second.size == 4 * 2 * K
        assert torch.equal(second.values[[0, 1, 2, 5]], logits()[[0, 1, 2, 5]])
        assert torch.equal(second.values[[3, 4]], logits(seed=1)[[3, 4]])


class TestSelection:
    def test_the_most_confident(self) -> None:
        given = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 3.0], [4.0, 0.0], [5.0, 0.0]])
        everything = torch.ones(5, dtype=torch.bool)
        assert most_confident(given, everything, 0.5).tolist() == [False, True, False, True, True]
        assert most_confident(given, everything, 0.01).tolist() == [
            False,
            True,
            False,
            False,
            False,
        ]  # the first of equals
        due = torch.tensor([True, False, True, True, False])
        assert most_confident(given, due, 0.5).tolist() == [False, False, True, True, False]

    def test_a_share_of_a_whole_number_is_no_sample_more(self) -> None:
        """In floating point 0.55 of 100 is 55.00000000000001."""
        assert int(most_confident(logits(100), torch.ones(100, dtype=torch.bool), 0.55).sum()) == 55

    def test_the_rest_is_not_known_and_a_bit_says_so(self) -> None:
        found = deliver(Knowledge(select=0.5), message(logits(10)), {})
        assert int(found.known.sum()) == 5
        assert found.size == 4 * 5 * K + 2
        assert torch.equal(found.values[found.known], logits(10)[found.known])
        assert (found.values[~found.known] == 0).all()

    def test_teachers_are_not_selected(self) -> None:
        found = deliver(Knowledge(select=0.5), message(torch.softmax(logits(), dim=1), logits=False), {})
        assert found.known.all()
        assert found.size == 4 * 6 * K

    def test_of_those_that_are_due_beside_a_cache(self) -> None:
        knowledge = Knowledge(cache=1, select=0.5)
        first = deliver(knowledge, message(logits(8), 1), {})
        second = deliver(knowledge, message(logits(8), 2), first.kept)
        assert [int(found.known.sum()) for found in (first, second)] == [4, 6]
        assert second.size == 4 * 2 * K + 1
        assert torch.equal(second.values[second.known], logits(8)[second.known])

    def test_one_that_is_due_and_not_chosen_does_not_serve_longer(self) -> None:
        """With D = 1 and one of 6 chosen in each round, the one of round t serves in t and t + 1."""
        knowledge = Knowledge(cache=1, select=0.01)
        kept: Any = {}
        for t in range(1, 5):
            values = torch.zeros(6, K, dtype=torch.float64)
            values[t, 0] = 9.0
            found = deliver(knowledge, message(values, t), kept)
            kept = found.kept
            assert found.known.nonzero().flatten().tolist() == ([t - 1, t] if t > 1 else [t])
            assert (found.values[~found.known] == 0).all()

    def test_as_the_method_says(self) -> None:
        chosen = torch.tensor([True, False, True, False, False, False])
        found = deliver(Knowledge(), message(logits(), chosen=chosen), {})
        assert torch.equal(found.known, chosen)
        assert found.size == 4 * 2 * K + 1


class TestNoise:
    def test_is_added_to_probabilities_and_projected(self) -> None:
        """By hand: the same draws, of which a valid distribution loses the mean, here without a negative entry."""
        values = torch.tensor([[0.0, 0.0, 0.0], [0.1, 0.0, -0.1]], dtype=torch.float64)
        draws = torch.randn(2, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        found = noisy(values, 0.01, torch.Generator().manual_seed(7)).exp()
        expected = values.softmax(dim=1) + 0.01 * (draws - draws.mean(dim=1, keepdim=True))
        assert torch.allclose(found, expected, rtol=0, atol=1e-14)

    def test_of_none_is_none(self) -> None:
        found = noisy(logits(), 0.0, torch.Generator())
        assert torch.allclose(found.softmax(dim=1), logits().softmax(dim=1), rtol=0, atol=1e-14)

    def test_stays_a_distribution_however_large(self) -> None:
        """Classes without probability get a finite logit."""
        found = noisy(logits(50), 3.0, torch.Generator().manual_seed(1))
        draws = torch.randn(50, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        expected = project(logits(50).softmax(dim=1) + 3.0 * draws)
        assert found.isfinite().all()
        assert (expected == 0).any()
        assert torch.allclose(found.softmax(dim=1), expected, rtol=0, atol=1e-10)
        assert noisy(logits().float(), 1.0, torch.Generator()).dtype == torch.float32
