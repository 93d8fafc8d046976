"""A client by itself: what it refuses, whatever the server says, and what it asks of its own file."""

import numpy as np
import pytest
import torch
import yaml
from real_clients import NoLink, deal_out, met_federation

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import client_file
from ktpfl_pipeline.flower.member import Member
from ktpfl_pipeline.flower.wire import Initial, Left, Packet, packed

BATCH = torch.arange(10)


@pytest.fixture(params=["kt_pfl", "fedproto"])
def begun(request, tmp_path):
    """A client that was told of a run of a method, and what a message of that run begins with."""
    link = NoLink(deal_out(tmp_path, request.param, ("mlp",) * 2, 1))
    fed = met_federation(tmp_path, link)
    fed.executor.start(fed)
    run = next(asked.values["run"] for kind, _, asked, _ in link.seen if kind == "begin")
    return request.param, link.members[1], {"run": run, "keep": [], "wanted": True, "number": 2**62}


def said(member, head, operation, *arguments):
    packet = packed(arguments)
    return member.answer("perform", Packet({**packet.values, **head, "operation": operation}, packet.tensors))


@pytest.mark.parametrize(
    ("operation", "arguments", "sentence"),
    [
        ("os.system", ("rm",), "a client offers train, distill"),
        ("logits+state", ({}, (Initial("mlp"), BATCH)), "a client offers"),
        ("train", (Initial("mlp"),), "other arguments than a model"),
        ("train", (Initial("mlp"), 2), "other arguments than"),
        ("train", (Initial("mlp"), 1, -1), "other arguments than"),
        ("train", (Initial("cnn"), 1), "means the initial 'cnn'"),
        ("train", ({"weight": torch.zeros(2)}, 1), "other arguments than"),
        ("evaluate", (Initial("mlp"), "all"), "other arguments than"),
        ("distill", (Initial("mlp"), torch.zeros(10, 3), BATCH, 1), "other arguments than"),
    ],
)
def test_what_no_client_does_is_refused(begun, operation, arguments, sentence):
    _, member, head = begun
    assert sentence in said(member, head, operation, *arguments).values["refused"]


def test_what_the_method_does_not_declare_is_refused_whatever_the_server_says(begun):
    method, member, head = begun
    asked = {"kt_pfl": ("class_means", 4), "fedproto": ("logits", BATCH)}[method]
    assert f"{method} declares to exchange" in said(member, head, asked[0], Initial("mlp"), asked[1]).values["refused"]
    trained = said(member, head, "train", Initial("mlp"), 1)
    assert not trained.tensors  # though it is wanted
    assert trained.values["value"]["kinds"]


def test_a_model_or_a_run_that_is_not_there_is_lost(begun):
    _, member, head = begun
    assert "its model 7 is not there" in said(member, head, "train", Left(7), 1).values["lost"]
    assert "knows nothing of this run" in said(member, {**head, "run": "abc"}, "train", Left(1), 1).values["lost"]
    assert "no name of a run" in said(member, {**head, "run": "../x"}, "train", Left(1), 1).values["refused"]


def test_other_messages_are_refused(begun):
    _, member, head = begun
    assert "no message that a client knows" in member.answer("die", Packet({})).values["refused"]
    assert "no number" in member.answer("hello", Packet({"seed": "a"})).values["refused"]
    assert "says nothing of run, method" in member.answer("begin", Packet({"code": "x"})).values["refused"]
    assert "not of its architecture" in member.answer("end", Packet({**packed(3).values, **head})).values["refused"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"client": None}, "client"),
        ({"colour": "red"}, "There is no setting 'colour'"),
        ({"owner": "me"}, "does not say whose its samples are"),
        ({"source": "npz:nothing.npz"}, "there is no file"),
        ({"source": "npz:features.npz"}, "has features"),
        ({"source": "npz:several.npz"}, "has samples of a, b"),
        ({"source": "npz:few.npz"}, "each client needs at least"),
        ({"architecture": None}, "architecture"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(tmp_path, changes, sentence):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "features.npz", features=np.zeros((20, 4), np.float32), labels=labels)
    np.savez(tmp_path / "several.npz", images=images, labels=labels, clients=np.array(["a", "b"] * 10))
    np.savez(tmp_path / "few.npz", images=images[:2], labels=labels[:2])
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    with pytest.raises(InputError, match=sentence):
        own = client_file.read(file)
        client_file.splits(own, client_file.samples(own, tmp_path), 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"architecture": "lenett"}, "Client 0 .*'lenett' is unknown"),
        ({"architecture": "my_package.nets:wide_mlp"}, "name no code of their own"),
        ({"source": "npz:nothing.npz"}, "there is no file"),
    ],
)
def test_who_starts_a_client_is_told_what_the_server_would_be(tmp_path, changes, sentence):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    Member(file).check()
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    with pytest.raises(InputError, match=sentence):
        Member(file).check()


def test_an_owner_takes_its_own_samples_and_its_own_test_split(tmp_path):
    images, labels = np.arange(40, dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2), np.arange(40) // 2 % 2
    owners, test = np.array(["a", "b"] * 20), np.arange(40) >= 30
    np.savez(tmp_path / "all.npz", images=images, labels=labels, clients=owners, test=test)
    own = client_file.ClientFile(client=0, source="npz:all.npz", owner="b", architecture="mlp")
    train, validation, tested = client_file.splits(own, client_file.samples(own, tmp_path), 0)
    assert sorted(tested.inputs[:, 0, 0, 0].tolist()) == [31, 33, 35, 37, 39]
    assert len(train) + len(validation) == 15
    assert all(value % 2 for value in train.inputs[:, 0, 0, 0].tolist())


def test_a_file_that_is_none_is_told_of(tmp_path):
    for text in ("", "- a", "a: [", "client: 0"):
        (tmp_path / "mine.yml").write_text(text)
        with pytest.raises(InputError, match=r"mine\.yml"):
            Member(tmp_path / "mine.yml")
    with pytest.raises(InputError, match="cannot be read"):
        Member(tmp_path / "yours.yml")
