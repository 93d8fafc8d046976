"""Fixtures of tests and of the checks of the documentation: one thread, no cached state, little garbage collection."""

import atexit
import gc
import inspect
import logging
import os
import sys
from collections.abc import Iterator

import pytest

gc.disable()  # until all imports are done; collection took a quarter of the time


def stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Replace inspect.stack without lines of source code, because searching for them goes through all modules."""
    frame, found = sys._getframe(1), list[inspect.FrameInfo]()
    while frame is not None:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found


inspect.stack = stack  # Kedro calls it four times per run, only for file names
os.fsync = lambda descriptor: None  # type: ignore[assignment]  # each checkpoint waits for the disk; no test cuts the power


def pytest_collection_finish() -> None:
    """Start garbage collection again, less often, and without the objects that existed before the first test.

    pytest's collection at its end excludes these objects too; with them it would take seconds. The loggers of torch
    propagate from now on. pytest adds a handler to each logger without propagation six times per test, and torch has
    fifty such loggers.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            logger.propagate = True
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Run torch on one thread, so that float32 results repeat bit for bit and tests can run in parallel."""
    import torch  # here, because the process that only distributes tests does not need torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    """Clear caches, so that no test sees the configuration of another test's project."""
    from ktpfl_pipeline.config import reading

    reading.remember(None)


@pytest.fixture
def blank_figures() -> Iterator[None]:
    """Make all figures blank, for tests of the text next to figures."""
    import blank

    with blank.blank_figures():
        yield
