"""Hostile files are refused in a sentence: no code of theirs runs, they fill no memory, nothing hangs."""

import os
import re
import resource
import socket
from pathlib import Path
from typing import Any

import forked
import pytest
from hostile_federations import FEDERATIONS
from hostile_files import FILES, TRACE
from PIL import Image

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.sources import load

ALL = {**FILES, **FEDERATIONS}
MEMORY = 2**30  # bytes that refusing all of them may take beyond what the imports take
SECONDS = 60  # of processor for all of them together


def read_all(asked: dict[str, tuple[str, str]], place: Path) -> tuple[dict[str, tuple[str, str]], int]:
    """Return what is said to each file in a process that may take little more memory than it has, and KiB it took."""
    taken = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text()).group(1)) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS,) * 2)
    socket.socket.connect = socket.getaddrinfo = no_network
    os.chdir(place)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    messages = {}
    for name, (source, folder) in asked.items():
        (place / "at").write_text(name)
        try:
            load(source, Path(folder)) if folder else bytearray(2 * MEMORY)
            messages[name] = "accepted", ""
        except BaseException as error:
            messages[name] = "InputError" if isinstance(error, InputError) else type(error).__name__, str(error)
    return messages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def no_network(*_: Any, **__: Any) -> None:
    raise OSError("no network")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, tuple[str, str]], int, Path]:
    """What was said to each file, KiB that the process took for them, and where it ran."""
    place = tmp_path_factory.mktemp("hostile")
    asked = {"twice the memory": ("", "")}
    for number, (name, (source, make, _)) in enumerate(ALL.items()):
        raw = place / str(number) / "01_raw"
        raw.mkdir(parents=True)
        make(raw)
        asked[name] = (source, str(raw))
    Image.init()
    import torchvision  # noqa: F401 - imports take memory and seconds that are not the files'

    try:
        messages, taken = forked.result(read_all, asked, place)
    except AssertionError as error:
        raise AssertionError(f"{error}, at {(place / 'at').read_text()!r}") from error
    return messages, taken, place


def test_each_is_refused_in_a_sentence(found: tuple[dict[str, tuple[str, str]], int, Path]) -> None:
    assert len(ALL) > 150
    wrong = {name: found[0][name] for name, (*_, words) in ALL.items() if not is_a_sentence(*found[0][name], words)}
    assert wrong == {}


def is_a_sentence(kind: str, message: str, words: str) -> bool:
    """Return whether an error is of the kind that users are told of, with these words, in one printable sentence."""
    return (
        kind == "InputError"
        and words in message
        and message.isprintable()
        and message.endswith(".")
        and len(message) <= 4100
    )


def test_no_code_of_theirs_ran(found: tuple[dict[str, tuple[str, str]], int, Path]) -> None:
    assert not list(found[2].rglob(TRACE))


def test_the_limit_is_felt(found: tuple[dict[str, tuple[str, str]], int, Path]) -> None:
    """Else the rest would prove nothing."""
    assert found[0]["twice the memory"][0] == "MemoryError"


def test_it_stayed_small(found: tuple[dict[str, tuple[str, str]], int, Path]) -> None:
    """What is taken without being asked for, in a decoder's C for instance, is seen here."""
    assert found[1] * 1024 < MEMORY / 2, found[1]
