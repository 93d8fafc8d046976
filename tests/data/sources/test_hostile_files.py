"""Hostile files are refused in a sentence: no code of theirs runs, they fill no memory, nothing hangs."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile_federations import FEDERATIONS
from hostile_files import FILES, TRACE

ALL = {**FILES, **FEDERATIONS}
MEMORY = 2**30  # bytes that refusing all of them may take beyond what the imports take
SECONDS = 60  # of processor for all of them together, and half of that is imports

_READ_ALL = """
import json, re, resource, socket, sys
from pathlib import Path

import numpy, torch, torchvision
from PIL import Image

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources import load

def refuse(*_, **__):
    raise OSError("no network")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
Image.init()
taken = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024
resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
messages = {}
for name, (source, folder) in json.load(sys.stdin).items():
    try:
        load(source, Path(folder)) if folder else bytearray(2 * int(sys.argv[1]))
        messages[name] = ["accepted", ""]
    except BaseException as error:
        messages[name] = [type(error).__name__, str(error)]
    print(name, file=sys.stderr, flush=True)
json.dump(messages, sys.stdout)
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, tuple[str, str]], Path]:
    """Every file read in one process that may take little more memory than it has, and where it ran."""
    place = tmp_path_factory.mktemp("hostile")
    asked = {"twice the memory": ("", "")}
    for number, (name, (source, make, _)) in enumerate(ALL.items()):
        raw = place / str(number) / "01_raw"
        raw.mkdir(parents=True)
        make(raw)
        asked[name] = (source, str(raw))
    command = [sys.executable, "-c", _READ_ALL, str(MEMORY), str(SECONDS)]
    began = time.monotonic()
    done = subprocess.run(
        command,
        check=False,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=place,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"after {time.monotonic() - began:.0f} s at the one after {done.stderr[-300:]!r}"
    return json.loads(done.stdout), place


@pytest.mark.parametrize("name", ALL)
def test_a_sentence(read: tuple[dict[str, tuple[str, str]], Path], name: str) -> None:
    kind, message = read[0][name]
    assert kind == "InputError", message
    assert ALL[name][2] in message
    assert message.isprintable()
    assert message.endswith(".")
    assert len(message) <= 4100


def test_no_code_of_theirs_ran(read: tuple[dict[str, tuple[str, str]], Path]) -> None:
    assert not list(read[1].rglob(TRACE))


def test_the_limit_is_felt(read: tuple[dict[str, tuple[str, str]], Path]) -> None:
    """Else the rest would prove nothing."""
    assert read[0]["twice the memory"][0] == "MemoryError"


def test_the_children_stayed_small() -> None:
    """What is taken without being asked for, in a decoder's C for instance, is seen here."""
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 3 * 2**30
