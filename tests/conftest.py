"""What every test shares."""

from collections.abc import Iterator

import pytest
import torch

pytest_plugins = ["finished_runs"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Run torch on one thread: results of float32 then repeat bit for bit, and tests may run side by side."""
    torch.set_num_threads(1)


@pytest.fixture
def blank_figures() -> Iterator[None]:
    """Draw no figure: for tests of what is said beside them."""
    import blank

    with blank.blank_figures():
        yield
