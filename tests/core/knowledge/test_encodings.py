"""Encodings of predictions: what arrives, how many bytes that took, and what is refused."""

import math

import pytest
import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.knowledge.encodings import Encoding, Float16, Sign, TopK, UInt8, encoding_of, pack
from ktpfl_pipeline.core.settings import Knowledge

ALL = {"float16": Float16(), "uint8": UInt8(), "sign": Sign(), "top_k": TopK(2)}


def values(samples: int = 7, classes: int = 10, spread: float = 3.0) -> Tensor:
    return spread * torch.randn(samples, classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def received(encoding: Encoding, given: Tensor) -> tuple[Tensor, int]:
    """Return what is decoded, and the bytes that are sent."""
    parts = encoding.encoded(given)
    return encoding.decoded(parts, (len(given), given.shape[1])), sum(part.nbytes for part in parts)


def size(name: str, samples: int, classes: int) -> int:
    """Return the bytes that each encoding takes, by hand."""
    return {
        "float16": 2 * samples * classes,
        "uint8": samples * classes + 8,
        "sign": math.ceil(samples * classes / 8) + 4,
        "top_k": samples * 2 * (4 + (1 if classes <= 256 else 2)),
    }[name]


@pytest.mark.parametrize("name", ALL)
def test_bytes_by_hand(name: str) -> None:
    for shape in ((1, 2), (7, 10), (3, 256), (3, 257)):
        given = torch.softmax(values(*shape), dim=1)
        found, sent = received(ALL[name], given)
        assert sent == size(name, *shape), shape
        assert (found.shape, found.dtype) == (shape, torch.float64)


@pytest.mark.parametrize("name", ALL)
def test_what_was_decoded_is_a_fixed_point(name: str) -> None:
    """Encoding loses something once: what came back travels without loss."""
    encoding = ALL[name]
    once, _ = received(encoding, torch.softmax(values(), dim=1))
    twice, _ = received(encoding, once)
    assert torch.allclose(once, twice, rtol=0, atol=1e-7)


def test_float16_is_half_precision() -> None:
    found = received(Float16(), values())[0]
    assert torch.equal(found, values().half().double())
    assert (found - values()).abs().max() <= values().abs().max() * 2**-11


def test_float16_of_what_is_too_large() -> None:
    given = torch.tensor([[-1e9, 0.0, 1e9]]).double()
    assert received(Float16(), given)[0].tolist() == [[-65504.0, 0.0, 65504.0]]


def test_uint8_is_half_a_step_off_at_most() -> None:
    given = values()
    found = received(UInt8(), given)[0]
    step = (given.max() - given.min()) / 255
    assert 0 < (found - given).abs().max() <= 0.5 * step * (1 + 1e-4)
    assert len(set(found.flatten().tolist())) > 50


def test_uint8_of_equal_values() -> None:
    given = torch.full((2, 3), 0.25, dtype=torch.float64)
    assert torch.equal(received(UInt8(), given)[0], given)


def test_sign_by_hand() -> None:
    """Means 2 and 1. Signs less their mean 1 -1 1 -1 and 1.5 -0.5 -0.5 -0.5, square 7; the product is 8 + 6 = 14."""
    given = torch.tensor([[5.0, 1.0, 3.0, -1.0], [4.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    found = received(Sign(), given)[0]
    assert found.tolist() == [[2.0, -2.0, 2.0, -2.0], [3.0, -1.0, -1.0, -1.0]]


def test_sign_contracts() -> None:
    """What is lost is smaller than what was given, by as much as the docstring says."""
    given = values()
    given = given - given.mean(dim=1, keepdim=True)
    lost = given - received(Sign(), given)[0]
    signs = given.sign() - given.sign().mean(dim=1, keepdim=True)
    less = given.abs().sum() ** 2 / signs.square().sum()
    assert float(lost.square().sum()) == pytest.approx(float(given.square().sum() - less), rel=1e-6)


def test_sign_of_equal_values() -> None:
    assert (received(Sign(), torch.full((2, 3), 0.25).double())[0] == 0).all()


def test_top_k_by_hand() -> None:
    """What 0.5 and 0.25 leave of 1 is an eighth each for the two others; of equal ones the first counts."""
    given = torch.tensor([[0.05, 0.5, 0.2, 0.25], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    found = received(TopK(2), given)[0]
    assert found.tolist() == [[0.125, 0.5, 0.125, 0.25], [0.25, 0.25, 0.25, 0.25]]
    certain = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(received(TopK(1), certain)[0], certain)


def test_top_k_leaves_nothing_below_0_where_rounding_exceeds_1() -> None:
    """In float32 0.6 and 0.4 are more than 1 together."""
    given = torch.tensor([[0.6, 0.4 - 2e-12, 1e-12, 1e-12]], dtype=torch.float64)
    assert received(TopK(2), given)[0][0, 2:].tolist() == [0.0, 0.0]


def test_top_k_of_all_classes_is_all_of_it() -> None:
    given = torch.softmax(values(), dim=1)
    assert torch.allclose(received(TopK(10), given)[0], given, rtol=0, atol=1e-7)


def test_eight_flags_take_a_byte() -> None:
    for number in (0, 1, 8, 13):
        assert len(pack(torch.arange(number) % 3 == 0)) == math.ceil(number / 8), number


def test_encodings_by_name() -> None:
    assert encoding_of(Knowledge()) is None
    assert {name: encoding_of(Knowledge(name, k=2)) for name in ALL}["top_k"] == TopK(2)  # type: ignore[arg-type]
    for name, encoding in ALL.items():
        assert type(encoding_of(Knowledge(name))) is type(encoding)  # type: ignore[arg-type]


def test_more_classes_than_there_are_cannot_be_sent() -> None:
    Knowledge("top_k", k=10).check(10)
    Knowledge("uint8", k=11).check(10)
    with pytest.raises(InputError, match=r"knowledge\.k is 11, but there are 10 classes: set it to at most 10"):
        Knowledge("top_k", k=11).check(10)
