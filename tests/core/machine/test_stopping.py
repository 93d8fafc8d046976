"""SIGTERM ends a process in order, also where a library has a handler of its own."""

import os
import signal
from collections.abc import Iterator

import pytest

from ktpfl_pipeline.core.machine.stopping import TerminatedError, heed, heeding


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_it_ends_what_runs_as_ctrl_c_does() -> None:
    heed()
    with pytest.raises(TerminatedError) as ended:
        os.kill(os.getpid(), signal.SIGTERM)
    assert isinstance(ended.value, KeyboardInterrupt)


def test_whatever_a_library_sets_meanwhile() -> None:
    heed()
    with heeding():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with pytest.raises(TerminatedError):
        os.kill(os.getpid(), signal.SIGTERM)


def test_where_nobody_heeds_it_a_library_may() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with heeding():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
