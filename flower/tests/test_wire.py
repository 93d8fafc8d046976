"""Values go over the wire and come back; what is none is refused before a tensor is made of it."""

import contextlib
import json

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from real_clients import traveled

from ktpfl_flower.wire import (
    LENGTH,
    NESTED,
    TEXT,
    Left,
    Packet,
    from_bytes,
    packed,
    to_bytes,
    unpacked,
)
from ktpfl_pipeline.core.errors import InputError


def message(header, data=b""):
    """Return a message with this header, as text or for JSON."""
    header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(header).to_bytes(LENGTH, "big") + header + data


def loaded(dtype, shape, data):
    """Return the tensor in a message of these bytes."""
    return from_bytes(message({"values": {}, "tensors": [["0", dtype, shape]]}, data)).tensors["0"]


def test_values_come_back_as_they_were():
    model = {"weight": torch.randn(3, 2), "seen": torch.tensor(7), "empty": torch.zeros(0, 4, dtype=torch.float64)}
    given = (1, 2.5, "train", None, True, model, (torch.ones(2, dtype=torch.bool), {}))
    back = unpacked(traveled(packed(given)))
    assert back[:5] == given[:5] and back[6][1] == {}
    assert all(torch.equal(back[5][name], model[name]) and back[5][name].dtype == model[name].dtype for name in model)
    assert torch.equal(back[6][0], given[6][0])


def test_a_model_that_was_left_comes_with_its_number_and_maybe_itself():
    for model in (None, {"weight": torch.ones(2, 3)}):
        back = unpacked(traveled(packed(Left(4, model))))
        assert back.version == 4
        assert (back.model is None) == (model is None)


@pytest.mark.parametrize(
    "tree",
    [
        {"tensor": "1"},
        {"tensor": "0", "more": 1},
        {"tensor": ["0"]},
        {"left": -1},
        {"left": 2**63},
        {"left": 1, "kinds": {}},
        {"left": 1, "model": {"w": 3}},
        {"model": ["0"]},
        {"code": "import os"},
        [1, 2],
        {},
    ],
)
def test_a_tree_that_means_nothing_is_refused(tree):
    with pytest.raises(InputError, match="which is not allowed"):
        unpacked(Packet({"value": tree}, {"0": torch.zeros(1)}))


def test_values_within_values_have_an_end():
    tree = {"tuple": []}
    for _ in range(100):
        tree = {"tuple": [tree]}
    with pytest.raises(InputError, match="not the JSON of a message"):
        traveled(Packet({"value": tree}))


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("object", (1,), b"12345678"),
        ("float32", (2,), b"1234"),
        ("float32", (-1, -1), b"1234"),
        ("<f4", (1,), b"1234"),
        ("float32", (1,) * 65, b"1234"),
        ("float32", (2**62, 2**62, 0), b""),
        ("float32", ("a",), b"1234"),
    ],
)
def test_bytes_that_are_no_tensor_are_refused(dtype, shape, data):
    with pytest.raises(InputError, match="it has a tensor of"):
        loaded(dtype, shape, data)


def test_what_cannot_travel_says_so():
    with pytest.raises(InputError, match="A function cannot be sent"):
        packed((1, packed))
    with pytest.raises(InputError, match="does not name"):
        unpacked(Packet({"value": 1}, {"0": torch.zeros(1)}))


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["0", "float32"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["tensor", "model", "tuple", "left", "0", "x"]), inner)
        | st.fixed_dictionaries({"left": inner, "model": st.dictionaries(st.text(max_size=2), inner, max_size=2)})
    ),
    max_leaves=6,
)
SIZES = st.integers() | st.sampled_from([None, True, 0.5, "a", 2**62, 0, []])


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_whatever_came_is_a_value_or_refused(tree):
    with contextlib.suppress(InputError):
        unpacked(Packet({"value": tree}, {"0": torch.zeros(1)}))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["float32", "bool", "int8"]), st.lists(SIZES, max_size=9), st.binary(max_size=8))
@example("bool", [1] * 65, b"1")
def test_whatever_shape_came_is_of_a_tensor_or_refused(dtype, shape, data):
    with contextlib.suppress(InputError):
        loaded(dtype, shape, data)


@pytest.mark.parametrize(
    "header",
    [
        *("[1]", "{", "[" * 100_000, '{"a":' * 100_000, "{}", '{"values": {}}', '{"values": 1, "tensors": []}'),
        *('{"values": {}, "tensors": [1]}', '{"values": {}, "tensors": [["0", "float32"]]}'),
        {"values": json.loads('{"a":' * (NESTED + 1) + "1" + "}" * (NESTED + 1)), "tensors": []},
    ],
)
def test_a_header_that_is_not_of_a_message_is_refused(header):
    with pytest.raises(InputError, match="not the JSON of a message"):
        from_bytes(message(header))


@pytest.mark.parametrize("data", [b"", b"no message", (2**60).to_bytes(LENGTH, "big"), to_bytes(Packet({}))[:-1]])
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(InputError):
        from_bytes(data)


def test_a_header_has_an_end():
    deep = json.loads('{"a":' * NESTED + "1" + "}" * NESTED)
    assert from_bytes(message({"values": deep, "tensors": []})).values["a"]
    with pytest.raises(InputError, match="at most"):
        from_bytes(message(" " * (TEXT + 1)))
