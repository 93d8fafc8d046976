"""A client by itself: what it refuses, whatever the server says."""

from pathlib import Path

import pytest
import torch
from real_clients import NoLink, deal_out, met_federation

from ktpfl_flower.wire import INITIAL, Left, Packet, packed
from ktpfl_pipeline.core.rounds import checkpoint

BATCH = torch.arange(10)


@pytest.fixture(params=["kt_pfl", "fedproto"])
def begun(request, tmp_path):
    """A client that was told of a run of a method, and what a message of that run begins with."""
    link = NoLink(deal_out(tmp_path, request.param, ("mlp",) * 2, 1))
    fed = met_federation(tmp_path, link)
    fed.executor.start()
    run = next(asked.values["run"] for kind, _, asked, _ in link.seen if kind == "begin")
    return request.param, link.members[1], {"run": run, "keep": [], "wanted": True, "number": 2**62}


def said(member, head, operation, *arguments):
    packet = packed(arguments)
    return member.answer("perform", Packet({**packet.values, **head, "operation": operation}, packet.tensors))


@pytest.mark.parametrize(
    ("operation", "arguments", "sentence"),
    [
        ("os.system", ("rm",), "a client offers train, train_privately, distill"),
        ("logits+state", ({}, (Left(INITIAL), BATCH)), "a client offers"),
        ("train", (Left(INITIAL),), "other arguments than a model"),
        ("train", (Left(INITIAL), 2), "other arguments than"),
        ("train", (Left(INITIAL), 1, -1), "other arguments than"),
        ("train", ({"weight": torch.zeros(2)}, 1), "other arguments than"),
        ("evaluate", (Left(INITIAL), "all"), "other arguments than"),
        ("distill", (Left(INITIAL), torch.zeros(10, 3), BATCH, 1), "other arguments than"),
    ],
)
def test_what_no_client_does_is_refused(begun, operation, arguments, sentence):
    _, member, head = begun
    assert sentence in said(member, head, operation, *arguments).values["refused"]


def test_what_the_method_does_not_declare_is_refused_whatever_the_server_says(begun):
    method, member, head = begun
    asked = {"kt_pfl": ("class_means", 4), "fedproto": ("logits", BATCH)}[method]
    assert (
        f"{method} declares to exchange only" in said(member, head, asked[0], Left(INITIAL), asked[1]).values["refused"]
    )
    trained = said(member, {**head, "number": 2**62 + 1}, "train", Left(INITIAL), 1)
    assert not trained.tensors  # though it is wanted
    assert list(trained.values["value"]) == ["left"]


def drawn(member):
    return dict(member._run.known.setting.initial_model("mlp"))


def test_a_model_of_the_server_s_is_refused_where_none_is_exchanged(begun):
    method, member, head = begun
    sentence = f"it sends a model, but {method} declares to exchange only p"
    for number, (name, *arguments) in enumerate([("train", drawn(member), 1), ("evaluate", drawn(member), "train")]):
        answer = said(member, {**head, "number": 2**62 + number}, name, *arguments)
        assert sentence in answer.values["refused"]
    remembered = said(member, {**head, "number": 2**62 + 2, "state": 7}, "train", Left(INITIAL), 1)
    assert "its model 7 does not exist" in remembered.values["lost"]
    end = packed(drawn(member))
    assert sentence in member.answer("end", Packet({**end.values, **head}, end.tensors)).values["refused"]


def test_a_client_tells_its_owner_what_leaves_it(tmp_path, caplog):
    caplog.set_level("INFO")
    fed = met_federation(tmp_path, NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",), 1)))
    fed.executor.start()
    assert f"Run {fed.executor.attendance.run[:6]} of kt_pfl starts: predictions leave this client." in caplog.text


def test_a_disk_that_is_full_is_not_told_with_its_paths(begun, monkeypatch):
    _, member, head = begun

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    answered = said(member, head, "train", Left(INITIAL), 1).values["refused"]
    assert answered == "its own file, samples or disk cannot be used; its log states the cause."


def test_a_disk_that_may_not_be_written_is_not_told_either(begun, monkeypatch):
    _, member, head = begun
    made = said(member, head, "train", Left(INITIAL), 1).values["value"]["left"]

    def denied(path, missing_ok):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", denied)
    answered = said(member, {**head, "number": 2**62 + 1}, "train", Left(made), 1).values["refused"]
    assert answered == "its own file, samples or disk cannot be used; its log states the cause."


def test_a_model_or_a_run_that_is_not_there_is_lost(begun):
    _, member, head = begun
    assert "its model 7 does not exist" in said(member, head, "train", Left(7), 1).values["lost"]
    assert "no data of this run" in said(member, {**head, "run": "abc"}, "train", Left(1), 1).values["lost"]
    assert "is not the name of a run" in said(member, {**head, "run": "../x"}, "train", Left(1), 1).values["refused"]


def test_other_messages_are_refused(begun):
    _, member, head = begun
    assert "the message 'die' does not exist" in member.answer("die", Packet({})).values["refused"]
    assert "must be an integer" in member.answer("register", Packet({"seed": "a"})).values["refused"]
    assert "lacks run, method" in member.answer("begin", Packet({"code": "x"})).values["refused"]
    assert (
        "not have the client's architecture"
        in member.answer("end", Packet({**packed(3).values, **head})).values["refused"]
    )
