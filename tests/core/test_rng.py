"""Named random streams."""

import itertools
from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import rng
from ktpfl_pipeline.core.client.rules import Descent


def test_a_seed_is_the_same_everywhere_and_always() -> None:
    """From sha256 of "seed/purpose/names": other numbers would change every published result."""
    assert rng.derive(0, "cohort", 1) == 8293203248204822525
    assert rng.derive(42, "initialisation", "lenet") == 4424118831779351219


def test_seeds_fit_a_generator() -> None:
    seeds = [rng.derive(seed, "x", n) for seed in range(20) for n in range(20)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62  # the whole range is used


def test_every_part_of_a_name_counts() -> None:
    names = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", 1, 2), (0, "a", 2, 1), (0, "a", 12), (0, "a", "b")]
    seeds = [rng.derive(*name) for name in names]
    assert len(set(seeds)) == len(names)


def test_no_two_streams_of_a_long_run_share_a_seed() -> None:
    purposes = ("private shuffle", "public shuffle", "dropout", "distillation dropout")
    rounds = {rng.derive(0, p, t, n) for p, t, n in itertools.product(purposes, range(1, 61), range(100))}
    assert len(rounds) == 4 * 60 * 100


def test_streams_repeat_and_are_independent_of_each_other() -> None:
    one, other = rng.stream(0, "a", 1), rng.stream(0, "a", 1)
    torch.rand(5, generator=rng.stream(0, "b"))
    torch.rand(5)
    assert torch.equal(torch.rand(8, generator=one), torch.rand(8, generator=other))
    assert not torch.equal(
        torch.rand(8, generator=rng.stream(0, "a", 1)), torch.rand(8, generator=rng.stream(0, "a", 2))
    )


def test_a_stream_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=rng.stream(0, "a"))
    assert torch.equal(torch.get_rng_state(), before)


class TestSeeded:
    def test_puts_the_generators_back(self) -> None:
        before = torch.get_rng_state()
        with rng.seeded(3):
            inside = torch.rand(2)
        assert torch.equal(torch.get_rng_state(), before)
        with rng.seeded(3):
            assert torch.equal(torch.rand(2), inside)

    def test_puts_them_back_after_an_error(self) -> None:
        before = torch.get_rng_state()
        with pytest.raises(ZeroDivisionError), rng.seeded(3):
            torch.rand(2)
            raise ZeroDivisionError
        assert torch.equal(torch.get_rng_state(), before)

    def test_on_the_cpu_no_gpu_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine may have some: to ask one starts CUDA, and then no worker can be forked."""

        def refuse(*arguments: Any) -> None:
            raise AssertionError("a GPU was asked")

        for name in ("_lazy_init", "get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"):
            monkeypatch.setattr(torch.cuda, name, refuse)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        fed = toy.federation(architectures=toy.ARCHITECTURES)
        trained = fed.train(fed.initial_models(), 1)
        fed.evaluate(trained, "test")
        fed.train_by(Descent(), trained, 0, steps=1)
