"""What goes through shared memory comes out as it went in."""

from typing import Any

import pretend
import pytest
import torch
import toy
from torch import Tensor, nn

from ktpfl_pipeline.core.executors.shared_memory import SharedMemory
from ktpfl_pipeline.core.linalg import ALIGNMENT

MESSAGES: dict[str, Any] = {
    "floats": torch.arange(6.0).reshape(2, 3),
    "doubles": torch.arange(6.0, dtype=torch.float64),
    "bytes, then floats": (torch.ones(3, dtype=torch.uint8), torch.full((5,), 0.1)),
    "a number": torch.tensor(7),
    "truths": torch.tensor([True, False]),
    "nothing": torch.empty(0, 4),
    "a transposed part": torch.arange(12.0).reshape(3, 4).T[1:3],
    "models": {3: {"weight": torch.randn(4, 5), "seen": torch.tensor(9)}, 8: {}},
    "no tensor": ["a", 1, None, {"b": (2.5,)}],
}


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(4096)


@pytest.mark.parametrize("copy", [True, False])
def test_comes_out_as_it_went_in(memory: SharedMemory, copy: bool) -> None:
    for name, message in MESSAGES.items():
        assert toy.same(memory.load(memory.dump(message), copy=copy), message), name


def test_what_does_not_fit_goes_with_the_rest(memory: SharedMemory) -> None:
    message = [torch.arange(1000.0), torch.arange(1000.0, 2000.0), torch.arange(3.0)]  # 4,000 bytes each
    rest = memory.dump(message)
    assert 4000 < len(rest) < 8000
    assert toy.same(memory.load(rest, copy=True), message)


def test_one_tensor_named_twice_is_stored_once(memory: SharedMemory) -> None:
    one = torch.arange(900.0)  # 3,600 bytes
    rest = memory.dump({"before": one, "after": one})
    assert len(rest) < 1000
    assert toy.same(memory.load(rest, copy=True), {"before": one, "after": one})


def test_a_copy_outlives_the_next_message(memory: SharedMemory) -> None:
    copied = memory.load(memory.dump(torch.zeros(4)), copy=True)
    seen = memory.load(memory.dump(torch.ones(4)), copy=False)
    memory.dump(torch.full((4,), 2.0))
    assert copied.tolist() == [0.0] * 4
    assert seen.tolist() == [2.0] * 4


def test_tensors_are_aligned_as_torch_aligns_them(memory: SharedMemory) -> None:
    """Kernels choose their code by it, and rounding with it."""
    found: list[Tensor] = memory.load(memory.dump([torch.ones(n) for n in (1, 3, 17)]), copy=False)
    assert [tensor.data_ptr() % ALIGNMENT for tensor in found] == [0, 0, 0]


def test_a_gradient_stays_behind(memory: SharedMemory) -> None:
    """A parameter goes by pickle; what was computed of it is a number here."""
    layer = nn.Linear(2, 2)
    assert not memory.load(memory.dump(layer(torch.ones(1, 2))), copy=True).requires_grad


def test_tensors_of_a_gpu_cross_in_one_transfer_each_way(memory: SharedMemory) -> None:
    """They go from there to there, those of the CPU from here to here, in one message."""
    values = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor(7), "c": torch.ones(5, dtype=torch.bool)}
    with pretend.gpu() as found:
        sent = {name: value.to(pretend.DEVICE) for name, value in values.items()}
        found.reads = found.copies = 0
        rest = memory.dump({"there": sent, "here": values})
        assert (found.reads, found.copies) == (1, 0)
        got = memory.load(rest, copy=True, device=torch.device(pretend.DEVICE))
        assert (found.reads, found.copies) == (1, 1)
        memory.dump(torch.zeros(500))
        assert all(value.device.type == pretend.DEVICE for value in got["there"].values())
        assert toy.same({name: value.cpu() for name, value in got["there"].items()}, values)
    assert toy.same(got["here"], values)
