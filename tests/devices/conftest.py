"""Tests of runs on a GPU. They do not cover kernels, asynchrony, speed and drivers.

The suite runs on an emulated GPU (`support/pretend.py`), which computes on the CPU, so results must equal the CPU's bit
for bit. ``pytest tests/devices --device=cuda`` runs the tests on a real GPU, where results are equal up to rounding.
Tests of single operations are then skipped.
"""

from pathlib import Path

import pytest
import torch
from devices import Device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.device)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """Return the device of the tests."""
    real = request.config.getoption("--device") == "cuda"
    if real and not torch.cuda.is_available():
        pytest.exit("--device=cuda, and torch finds no GPU here: leave it out to try the pretended one.", returncode=4)
    return Device(real)


@pytest.fixture(scope="session")
def pretended(device: Device) -> Device:
    """Return the pretended device: for tests that look at single operations."""
    if device.real:
        pytest.skip("operations are seen on the pretended device alone")
    return device
