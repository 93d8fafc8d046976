import re
from pathlib import Path

import pytest
import torch
from alignment import PickyProcessor, moved
from torch import Tensor

import ktpfl_pipeline
from ktpfl_pipeline.core import linalg
from ktpfl_pipeline.core.linalg import is_settled, settled

SOURCE = Path(ktpfl_pipeline.__file__).parent
OFFSETS = range(1, 16)  # of 4 bytes: every place of a float32 within 64 bytes
ROUTINE = re.compile(
    r"\b(torch|np|numpy|scipy)\.linalg\.(?!vector_norm)|(?<!linalg)\.(svd|eigh?|qr|cholesky|lstsq|pinverse|inverse)\("
)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def test_svd_is_the_reduced_decomposition_in_its_own_memory() -> None:
    matrix = drawn(5, 9)
    u, s, v = linalg.svd(matrix)
    assert (u.shape, s.shape, v.shape) == ((5, 5), (5,), (5, 9))
    assert torch.allclose(u * s @ v, matrix, atol=1e-5)
    assert all(map(is_settled, (u, s, v)))


def test_solve_solves() -> None:
    assert linalg.solve(torch.tensor([[2.0, 0.0], [1.0, 4.0]]), torch.tensor([2.0, 9.0])).tolist() == [1.0, 2.0]


def test_solve_of_a_singular_matrix_raises_nothing() -> None:
    assert not linalg.solve(torch.zeros(2, 2), torch.ones(2)).isfinite().any()


@pytest.mark.parametrize("offset", OFFSETS)
def test_decompositions_do_not_depend_on_the_place_in_memory(offset: int) -> None:
    wide, square, right = drawn(4, 7), drawn(4, 4, dtype=torch.float64), drawn(4, dtype=torch.float64)
    with PickyProcessor():
        for call, arguments in ((linalg.svd, (wide,)), (linalg.solve, (square, right))):
            here, there = call(*arguments), call(*moved(arguments, offset))
            assert all(map(torch.equal, here, there))
        assert not torch.equal(torch.linalg.svd(wide)[1], torch.linalg.svd(wide.T.contiguous().T)[1])


def test_decompositions_do_not_depend_on_the_number_of_threads() -> None:
    threads = torch.get_num_threads()
    try:
        with PickyProcessor():
            torch.set_num_threads(1)
            one = linalg.svd(drawn(4, 7))
            torch.set_num_threads(3)
            assert all(map(torch.equal, one, linalg.svd(drawn(4, 7))))
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_settled_copies_only_what_must_be_copied() -> None:
    ready = {"a": torch.ones(3), "b": (torch.ones(2), 1, None)}
    assert settled(ready) is ready
    late = torch.arange(5.0)[1:]
    found = settled({"late": late, "columns": [drawn(3, 2).T], "ready": ready})
    assert found["ready"] is ready
    assert is_settled(found["late"]) and torch.equal(found["late"], late)
    assert is_settled(found["columns"][0]) and torch.equal(found["columns"][0], drawn(3, 2).T)


def test_only_this_module_decomposes_matrices() -> None:
    """`vector_norm` is a sum of torch's own, which no library computes."""
    callers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if ROUTINE.search(path.read_text(encoding="utf-8"))
    }
    assert callers == {"core/linalg.py"}
