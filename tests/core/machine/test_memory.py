"""What is said when memory is used up: by a client, by clients at once, by a worker's client, and by the server."""

from typing import Any

import pytest
import torch
import toy

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.client.outcome import Outcome, Resuming
from ktpfl_pipeline.core.engine import Schedule
from ktpfl_pipeline.core.errors import InputError, used_up
from ktpfl_pipeline.core.executors.base import call_failed
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.methods.kt_pfl import KTpFL

ON_A_GPU = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.19 GiB is free."
    " Including non-PyTorch memory, this process has 77.95 GiB memory in use."
)
SETTINGS = (
    "set training.batch_size (8), distillation.batch_size (8), compute.prediction_batch (1000) or "
    "compute.server_memory (512) lower, or compute.executor to serial. Then give the same command again: "
    "it continues after the last finished round."
)


def greedy(space: Any, n: int) -> Outcome[None]:
    """Ask for more than a GPU has, as the third client."""
    if n == toy.IDS[2]:
        raise torch.OutOfMemoryError(ON_A_GPU)
    return Outcome(None)


def wrong(space: Any, n: int) -> Outcome[None]:
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x64 and 65x3)")


@pytest.mark.parametrize("executor", [SerialExecutor(), ProcessesExecutor(2)], ids=["serial", "workers"])
def test_a_client_and_the_settings_are_named(executor: Any) -> None:
    with pytest.raises(InputError) as raised:
        executor.run(toy.federation(), "train", greedy, dict.fromkeys(toy.IDS, ()))
    executor.close()
    what = ON_A_GPU.partition(". Including")[0]
    assert str(raised.value) == f"Client 11's greedy used up the memory of cpu ({what}): {SETTINGS}"


def test_a_model_of_the_server_is_named_and_what_remembers_its_optimizer_goes_by_what_it_does() -> None:
    def used_up(space: Any, n: int | str) -> Any:
        raise torch.OutOfMemoryError(ON_A_GPU)

    fed = toy.federation()
    with pytest.raises(InputError, match=r"^The server's mlp's used_up used up the memory of cpu "):
        SerialExecutor().run(fed, "distill", used_up, {"mlp": ()})
    with pytest.raises(InputError, match=r"^Client 11's used_up used up the memory of cpu "):
        SerialExecutor().run(fed, "train", Resuming(used_up), {11: ({}, ())})
    assert str(call_failed("mlp", "distill", "workers", "SIGKILL")).startswith(
        "The server's mlp's distill ended 2 workers"
    )


def test_the_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def mix(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError(ON_A_GPU)

    monkeypatch.setattr(KTpFL, "round", mix)
    with pytest.raises(InputError, match=r"^The server used up the memory of cpu \(CUDA out of memory\. Tried"):
        engine.run(KTpFL(), toy.federation(), Schedule(rounds=1))


def test_errors_that_mean_it() -> None:
    expected = {
        "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.": True,
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": True,
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried": True,
        "CUDA error: device-side assert triggered": False,
    }
    assert {text: used_up(RuntimeError(text)) for text in expected} == expected
    assert used_up(MemoryError())
    assert used_up(OSError(12, "Cannot allocate memory"))
    assert not used_up(ValueError("out of memory"))


def test_pythons_own_error_is_told_of_too() -> None:
    def greedy(space: Any, n: int) -> Outcome[None]:
        raise MemoryError

    with pytest.raises(
        InputError, match=r"^Client 11's greedy used up the memory of cpu \(MemoryError\): set training"
    ):
        SerialExecutor().run(toy.federation(), "train", greedy, {11: ()})


def test_other_errors_are_as_they_were() -> None:
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2"):
        SerialExecutor().run(toy.federation(), "train", wrong, {toy.IDS[0]: ()})
