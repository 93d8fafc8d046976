"""Batches: their lengths and order, and the steps of a round."""

from dataclasses import replace

import torch
import toy

from ktpfl_pipeline.core.client import sgd
from ktpfl_pipeline.core.client.rules import Descent
from ktpfl_pipeline.core.settings import Budgets, LocalTraining, Reliability


class TestBatches:
    def test_every_index_once_in_batches_of_the_lengths_by_hand(self) -> None:
        expected = {
            (20, 8): [8, 8, 4],  # the last short batch is kept
            (18, 8): [8, 8, 2],
            (17, 8): [8, 9],  # a single image joins the batch before it
            (9, 8): [9],
            (16, 8): [8, 8],
            (8, 8): [8],
            (7, 8): [7],
            (1, 8): [1],
            (3, 2): [3],
            (3, 1): [1, 1, 1],  # batches of one are what was asked for
        }
        for (samples, size), lengths in expected.items():
            parts = sgd.batches(samples, size, torch.Generator().manual_seed(0))
            assert [len(part) for part in parts] == lengths, (samples, size)
            assert sorted(torch.cat(parts).tolist()) == list(range(samples)), (samples, size)

    def test_each_epoch_is_shuffled_anew(self) -> None:
        shuffle = torch.Generator().manual_seed(0)
        one, other = (torch.cat(sgd.batches(50, 8, shuffle)).tolist() for _ in range(2))
        assert one != other
        assert one != list(range(50))


def test_a_step_of_all_tensors_together_is_that_of_one_after_another_to_the_bit() -> None:
    """Numbers without a shape, none at all, and a gradient in channels last too."""
    shapes = [(4, 2, 3, 3), (4,), (7, 36), (), (0, 2)]
    stream = torch.Generator().manual_seed(0)
    weights, slopes = ([torch.randn(shape, generator=stream) for shape in shapes] for _ in range(2))
    slopes[0] = slopes[0].contiguous(memory_format=torch.channels_last)
    expected = [weight.clone().sub_(slope, alpha=0.037) for weight, slope in zip(weights, slopes, strict=True)]
    sgd.step(weights, slopes, 0.037)
    assert all(torch.equal(weight, other) for weight, other in zip(weights, expected, strict=True))


class TestSteps:
    """Client 3 has 16 samples, two batches of 8; client 12 has 9, one batch."""

    TRAINING = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)

    def test_all_steps_of_the_epochs_equal_these_epochs(self) -> None:
        expected = toy.federation(training=self.TRAINING)
        fed = replace(expected, training=replace(self.TRAINING, epochs=7, steps=4))
        trained, reference = (each.train({3: each.initial_models()[3]}, 1) for each in (fed, expected))
        assert toy.same(trained, reference)

    def test_the_last_pass_ends_after_the_last_step(self) -> None:
        fed = toy.federation(training=replace(self.TRAINING, steps=3))
        both = {n: fed.initial_models()[n] for n in (3, 12)}
        trained = fed.train(both, 1)
        assert {n: counted.total() for n, counted in fed.current.samples.items()} == {3: 16 + 8, 12: 3 * 9}
        assert {n: fed.training_of(n).epochs for n in both} == {3: 2, 12: 3}
        by_rule, _ = fed.train_by(Descent(), both, 1)
        names = list(fed.initial_models()[3])
        assert all(torch.allclose(by_rule[n][name], trained[n][name], atol=1e-6) for n in both for name in names)

    def test_a_budget_limits_the_steps(self) -> None:
        reliability = Reliability(budgets=Budgets(share=0.5, epochs=0.25))
        fed = toy.federation(training=replace(self.TRAINING, steps=8), reliability=reliability)
        assert {fed.training_of(n).steps for n in fed.budgeted_ids} == {2}

    def test_further_epochs_are_whole_epochs(self) -> None:
        fed = toy.federation(training=replace(self.TRAINING, steps=1))
        models = {3: fed.initial_models()[3]}
        assert toy.same(fed.fine_tune(models, 1), replace(fed, training=self.TRAINING).fine_tune(models, 1))
