"""Memory that data or weights would use up: claims are checked first, and what an allocator says becomes a sentence."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_configuration import EXPERIMENT as SECTION
from kedro.io import DatasetError

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine import resources
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.data.sources.files import readable
from ktpfl_pipeline.models import pretrained
from ktpfl_pipeline.pipelines.datasets import FederationDataset

ALLOCATOR = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(ALLOCATOR)])
def test_what_an_allocator_says_becomes_a_sentence(error: Exception) -> None:
    with (
        pytest.raises(InputError, match=r"^Reading used up the memory of this machine \(.+\): choose a smaller"),
        resources.used_up_by("Reading"),
    ):
        raise error


def test_other_errors_stay() -> None:
    with pytest.raises(RuntimeError, match="shape"), resources.used_up_by("Reading"):
        raise RuntimeError("shape '[3]' is invalid")


def test_weights_of_strides_zero_are_refused_by_what_they_claim(tmp_path: Path) -> None:
    torch.save({"layer.weight": torch.zeros(1).expand(10**10)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"w.pt claims 37 GiB of weights, more than .*: give weights of the arch"):
        pretrained.read(tmp_path / "w.pt")


def test_weights_that_expand_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"weight": torch.zeros(2**20)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as whole, zipfile.ZipFile(tmp_path / "small.pt", "w", 8) as packed:
        for part in whole.infolist():
            packed.writestr(part.filename, whole.read(part))
    monkeypatch.setattr(resources, "MAX_BYTES", 2**20)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    assert (tmp_path / "small.pt").stat().st_size < 50_000
    with pytest.raises(InputError, match=r"small.pt claims 4 MiB of weights, more than the 1 MiB allowed"):
        pretrained.read(tmp_path / "small.pt")


def test_a_number_of_clients_is_bounded_before_anything_is_made() -> None:
    with pytest.raises(InputError, match=r"mine.clients is 1000000000; .*100,000"):
        parsing.parse("mine", {**SECTION, "clients": 10**9})


def within_readable(file: Path) -> None:
    with readable(file):
        torch.load(file)


READERS: dict[str, Callable[[Path], Any]] = {
    "a checkpoint": lambda file: checkpoint.load(file, {"seed": 0}, torch.device("cpu")),
    "weights": pretrained.read,
    "a file of samples": within_readable,
    "the prepared data": lambda file: FederationDataset(filepath=str(file)).load(),
}


@pytest.mark.parametrize("what", READERS)
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(ALLOCATOR)])
def test_a_whole_file_is_not_called_damaged_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: Exception
) -> None:
    """The advice would be to delete it."""
    checkpoint.save(tmp_path / "file.pt", {"settings": {"seed": 0}})

    def load(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises((type(error), DatasetError)) as raised:
        READERS[what](tmp_path / "file.pt")
    assert error in (raised.value, raised.value.__cause__), "Kedro raises its own from it"
