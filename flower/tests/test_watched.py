"""A command that ends with the process that started it, and one of Flower with more time."""

import importlib
import os
import signal
import sys

import forked
import pytest
from loopback import wait_for

from ktpfl_flower import watched as module
from ktpfl_flower.watched import watched

SAYS_WHO = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
"""A stand-in for a SuperLink."""


def parent(command):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell lets its background jobs ignore
    watched(command).wait()


def ended_by_signals(command):
    module.ended_by_signals()
    with watched(command) as started:
        started.wait()


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
    process = forked.start(parent, command)
    child = number(tmp_path / "number")
    os.kill(process, how)
    os.waitpid(process, 0)
    wait_for(lambda: not there(child), 60)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_ended_waits_for_the_end_of_what_it_started(tmp_path, how):
    process = forked.start(ended_by_signals, [sys.executable, "-c", SAYS_WHO, str(tmp_path / "number")])
    child = number(tmp_path / "number")
    os.kill(process, how)
    os.waitpid(process, 0)
    assert not there(child)


def test_it_ends_when_its_input_does(tmp_path):
    process = watched([sys.executable, "-c", SAYS_WHO, str(tmp_path / "number")])
    child = number(tmp_path / "number")
    process.communicate()
    assert not there(child) and process.returncode != 0


def test_its_own_end_is_seen():
    process = watched([sys.executable, "-c", "raise SystemExit(3)"])
    assert process.wait() == 3
    process.communicate()


def test_a_command_of_flower_gets_more_time_for_the_apps_that_it_starts(monkeypatch):
    pytest.importorskip("flwr", reason="flwr is not installed here: make flower")
    seen = {}

    class Command:
        def load(self):
            return lambda: seen.update(
                {place: importlib.import_module(place).HEARTBEAT_DEFAULT_INTERVAL for place in module.STATES},
                arguments=sys.argv,
            )

    for place in module.STATES:
        assert importlib.import_module(place).HEARTBEAT_DEFAULT_INTERVAL == 30
        monkeypatch.setattr(f"{place}.HEARTBEAT_DEFAULT_INTERVAL", 30)  # undone at the end
    monkeypatch.setattr(module, "entry_points", lambda group, name: [Command()] if name == "flower-superlink" else [])
    monkeypatch.setattr(sys, "argv", [*module.patient("flower-superlink", "--insecure")][2:])
    module.main()
    assert seen == {**dict.fromkeys(module.STATES, module.SECONDS), "arguments": ["flower-superlink", "--insecure"]}
