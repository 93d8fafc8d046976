"""What this suite cannot show: kernels, asynchrony, speed, drivers.

It runs everything on a GPU that is pretended (`support/pretend.py`), whose numbers are the CPU's, so that results must
equal the CPU's to the bit; ``pytest tests/devices --device=cuda`` runs the same tests on a real one, up to rounding,
and leaves out those that look at single operations.
"""

from pathlib import Path

import pytest
import torch
from devices import Device


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.device)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """Return the device that is tried."""
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
