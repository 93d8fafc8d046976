"""What a container leaves of a machine."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ktpfl_pipeline.core.machine import resources

GB = 10**9


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 cores, of which no container takes any yet."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    return tmp_path


def test_cores(root: Path) -> None:
    assert resources.cores(root) == 8  # without a container
    expected = {"max 100000": 8, "400000 100000": 4, "250000 100000": 2, "50000 100000": 1, "1600000 100000": 8}
    for quota, cores in expected.items():
        root.joinpath("cpu.max").write_text(f"{quota}\n")
        assert resources.cores(root) == cores, quota


def test_memory_is_what_the_container_leaves(root: Path) -> None:
    machine = resources.free_memory(root)
    root.joinpath("memory.max").write_text("3000000\n")
    root.joinpath("memory.current").write_text("1000000\n")
    assert resources.free_memory(root) == 2_000_000 < machine
    root.joinpath("memory.max").write_text("max\n")
    assert resources.free_memory(root) > 2_000_000


@pytest.mark.parametrize(("free", "expected"), [(100 * GB, 8), (7 * GB, 4), (GB, 1)])
def test_workers_need_a_core_and_memory(root: Path, monkeypatch: pytest.MonkeyPatch, free: int, expected: int) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda root: free)
    assert resources.default_workers(root) == expected


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such options")
def test_freed_memory_is_taken_again() -> None:
    """Ten blocks of 40 MB, one after another: without the options each is mapped anew, page by page."""
    found = subprocess.run([sys.executable, "-c", BLOCKS], check=True, capture_output=True).stdout
    usual, kept = map(int, found.split())
    assert 5 * kept < usual


BLOCKS = """
import resource, sys, types
sys.modules["torch"] = types.SimpleNamespace(device=object)  # it takes seconds, and has no part in this
from ktpfl_pipeline.core.machine import resources

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        b"x" * 40_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(5)  # some to begin with
print(faults(10))
resources.keep_freed_memory()
faults(20)
print(faults(10))
"""
