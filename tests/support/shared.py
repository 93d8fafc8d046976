"""What tests and the checks of the documentation share: one thread, nothing remembered, garbage looked for rarely."""

import atexit
import gc
import inspect
import logging
import sys
from collections.abc import Iterator

import pytest

gc.disable()  # until all is imported and collected: looking for garbage among it took a quarter of the whole time


def stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Do what inspect.stack does, without the lines of source: to find them, all modules are gone through."""
    frame, found = sys._getframe(1), list[inspect.FrameInfo]()
    while frame is not None:
        code = frame.f_code
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found


inspect.stack = stack  # Kedro's reader of settings asks it four times a run, for the names of files alone


def pytest_collection_finish() -> None:
    """Look for garbage again, but never among what was there before the first test, and less often.

    Nor when pytest looks for it at the end, which took seconds; all that is left ends with the process.

    Loggers that pass nothing on get a handler of pytest's six times in each test, and torch has fifty of them.
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
