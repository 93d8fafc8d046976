"""Tests of `benchmarks/race.py`."""

import argparse
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

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
    assert [[len(part) for part in parts] for parts in race.clients(2, 640)] == [[256, 36]] * 2


def test_table_has_each_way_with_its_ratios_and_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Way:
        def __init__(self, make: Any, *arguments: Any) -> None: ...

    def in_turn(ways: dict[str, Way], turns: int) -> dict[str, list[float]]:
        return {name: [8.0 / place] * turns for place, name in enumerate(ways, 1)}

    monkeypatch.setattr(race.measure, "Way", Way)
    monkeypatch.setattr(race.measure, "in_turn", in_turn)
    monkeypatch.setattr(race, "ProcessPoolExecutor", lambda number, context: ThreadPoolExecutor(number))
    monkeypatch.setattr(race, "accuracy", lambda make, *arguments: 0.5)
    asked = argparse.Namespace(clients=2, images=128, rounds=2, turns=2, pfllib=Path("there"))
    title, *_, first, second, third, fourth, _ = race.race(asked, 10)
    assert title == "## Batches of 10"
    assert first == "| PFLlib | 4.00 | 1 | 0.50 | 50.0% | 8.00 8.00 |"
    assert second.startswith("| PFLlib without evaluation | 2.00 | 2.00 | 1 | ")
    assert third.startswith("| ours | 1.33 | 3.00 | 1.50 | ")
    assert fourth.startswith("| ours, channels last | 1.00 | 4.00 ")
