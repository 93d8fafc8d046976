"""A command that ends with the process that started it."""

import os
import signal
import subprocess
import sys

import pytest
from loopback import wait_for

from ktpfl_flower.join import watched

SAYS_WHO = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
"""A stand-in for a SuperLink."""
PARENT = """
import signal, sys, time
from ktpfl_flower.join import watched
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell lets its background jobs ignore
kept = watched(sys.argv[1:])
time.sleep(600)
"""


def number(file):
    """Return what process has written its number to a file."""
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), 60)
    return int(file.read_text())


def there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_parent_whatever_ends_that(tmp_path, how):
    command = [sys.executable, "-c", SAYS_WHO, str(tmp_path / "number")]
    with subprocess.Popen([sys.executable, "-c", PARENT, *command], stderr=subprocess.DEVNULL) as parent:
        child = number(tmp_path / "number")
        parent.send_signal(how)
        parent.wait(60)
    wait_for(lambda: not there(child), 60)


def test_it_ends_when_its_input_does(tmp_path):
    process = watched([sys.executable, "-c", SAYS_WHO, str(tmp_path / "number")])
    child = number(tmp_path / "number")
    process.communicate()
    assert not there(child) and process.returncode != 0


def test_its_own_end_is_seen():
    process = watched([sys.executable, "-c", "raise SystemExit(3)"])
    assert process.wait() == 3
    process.communicate()
