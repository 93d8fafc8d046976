"""Tests of `benchmarks/race.py`."""

import argparse
import contextlib
import io
import math
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked
import numpy as np
import pytest
import race


def test_ratio_of_turns_by_hand() -> None:
    """The logarithms of 2, 2 and 2 · e³ have the mean log 2 + 1, and t(0.975, 2) is 4.303."""
    assert race.interval([2.0, 4.0, 4.0], [1.0, 2.0, 2.0]) == "2.00 [2.00, 2.00]"
    half = 4.302653 * math.sqrt(3) / math.sqrt(3)
    low, middle, high = (math.exp(math.log(2) + 1 + by) for by in (-half, 0, half))
    assert race.interval([2.0, 2.0, 2 * math.e**3], [1.0] * 3) == f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    assert race.interval([3.0, 3.0], [2.0, 2.0]) == "1.50", "fewer than three turns have no interval"


def test_clients_have_whole_batches_and_as_many_test_images_as_a_seventh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race.measure, "RAW", tmp_path)
    owner, test = np.repeat([0, 1], 400), np.tile(np.arange(400) >= 300, 2)
    images, labels = np.zeros((800, 28, 28), np.uint8), np.zeros(800, np.int64)
    np.savez(tmp_path / "mnist_20_clients.npz", images=images, labels=labels, clients=owner, test=test)
    assert [[len(part[1]) for part in parts] for parts in race.clients("mnist", 2, 640)] == [[256, 36]] * 2


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hundred images of ten classes, whose pixels are their numbers."""
    monkeypatch.setattr(race.measure, "RAW", tmp_path)
    images = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 32, 32, 3))
    np.savez(tmp_path / "cifar10.npz", images=images, labels=np.arange(100) % 10)


@pytest.mark.usefixtures("cifar")
def test_clients_have_two_shards_of_one_class_or_random_images_which_are_never_tested() -> None:
    for work, most in (("blazefl", 4), ("pfl", 10)):
        parts = list(race.clients(work, 10, 16))
        trained, tested = ({int(x[0, 0, 0]) for part in parts for x in part[own][0]} for own in (0, 1))
        assert len(trained) == 80
        assert not trained & tested
        assert len(tested) == 20
        classes = [len(labels.unique()) for (images, labels), _ in parts]
        assert max(classes) <= most
        assert {len(labels) for (_, labels), _ in parts} == {16}


def test_table_has_each_way_with_its_ratios_startup_and_accuracy() -> None:
    names = ("flower", "blazefl", "ours")
    turns = {}
    for place, name in enumerate(names, 1):
        first, each = place + 4.0 / place, 4.0 / place
        turns[name] = [race.Turn(0.0, [first, first + each, first + 2 * each], 0.5)] * 2
    heads, _, first, second, third = race.table(turns, 2)
    assert heads == "| | seconds a round | × flower | × blazefl | start-up | accuracy | seconds of each turn |"
    assert first == "| flower | 4.00 | 1 | 0.50 | 1.0 | 50.0% | 8.00 8.00 |"
    assert second.startswith("| blazefl | 2.00 | 2.00 | 1 | 2.0 | ")
    assert third.startswith("| ours | 1.33 | 3.00 | 1.50 | 3.0 | ")


def run_forked(command: list[str], **_: Any) -> SimpleNamespace:
    """Run a Python script in a fork of this process, where subprocess.run would import torch again."""

    def printed() -> str:
        sys.argv = command[1:]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            runpy.run_path(command[1], run_name="__main__")
        return output.getvalue()

    return SimpleNamespace(stdout=forked.result(printed))


@pytest.mark.usefixtures("cifar")
def test_a_turn_of_ours_counts_the_rounds_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours in both layouts trains the same clients from the same weights."""
    monkeypatch.setattr(race.subprocess, "run", run_forked)
    monkeypatch.setitem(race.WORKS["blazefl"], "epochs", 1)
    asked = argparse.Namespace(work="blazefl", rivals=[], pfllib="", clients=2, images=16, rounds=1, turns=1)
    *_, plain, last, _ = race.race(asked, 8)
    assert plain.startswith("| ours | ")
    assert plain.split(" | ")[3] == last.split(" | ")[3], "the accuracies"


@pytest.mark.usefixtures("cifar")
def test_the_only_round_with_an_evaluation_is_left_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third round after the first takes five seconds, the others one."""
    monkeypatch.setattr(race, "turn", lambda _: race.Turn(0.0, [2.0, 3.0, 4.0, 9.0], 0.5))
    asked = argparse.Namespace(work="pfl", rivals=[], pfllib="", clients=2, images=16, rounds=3, turns=1)
    shown = [line.split(" | ")[1] for line in race.race(asked, 8) if line.startswith("| ours | ")]
    assert shown == ["2.33", "1.00"]
