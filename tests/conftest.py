"""What every test shares."""

import gc
import logging
from collections.abc import Iterator

import pytest

pytest_plugins = ["finished_runs", "empty_store"]
gc.disable()  # until all is imported and collected: looking for garbage among it took a quarter of the whole time

LONGEST = [
    "test_contract.py",
    "test_methods.py",
    "test_campaign.py",
    "test_cluster.py",
    "test_tune.py",
    "test_figures.py",
    "test_end_to_end.py",
    "test_real_faults.py",
    "test_sweep.py",
    "test_notebooks.py",
    "test_resume.py",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``pytest tests/devices --device=cuda`` try the real GPU in the place of the pretended one."""
    parser.addoption("--device", choices=["pretended", "cuda"], default="pretended", help="what tests/devices run on")
    parser.addoption(
        "--all-ways", action="store_true", help="let all methods there meet each precision serial and stacked"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hand out the longest files first: while the last one is done, the other process has nothing to do."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_collection_finish() -> None:
    """Look for garbage again, but never among what was there before the first test, and less often.

    Loggers that pass nothing on get a handler of pytest's six times in each test, and torch has fifty of them.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            logger.propagate = True
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let what is left end as usual."""
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Run torch on one thread: results of float32 then repeat bit for bit, and tests may run side by side."""
    import torch  # here: the process that only hands out the tests needs none

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Let no test see the configuration of the project that another one ran."""
    from ktpfl_pipeline.config import reading

    reading.remember(None)


@pytest.fixture
def blank_figures() -> Iterator[None]:
    """Draw no figure: for tests of what is said beside them."""
    import blank

    with blank.blank_figures():
        yield
