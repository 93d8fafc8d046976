"""Work in a fork of this process, because a new Python process takes seconds to import torch."""

import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable
from typing import Any


def start(work: Callable[..., Any], *arguments: Any) -> int:
    """Return the id of a child process that does `work` and ends with 0, or with 1 if `work` raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill(child: int) -> None:
    """End a child process with SIGKILL, and check that it had not ended by itself."""
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def result(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `work` in a child process."""
    with tempfile.TemporaryFile() as answer:

        def write() -> None:
            answer.write(pickle.dumps(work(*arguments)))
            answer.flush()

        status = os.waitpid(start(write), 0)[1]
        assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
        answer.seek(0)
        return pickle.load(answer)
