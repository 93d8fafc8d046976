"""A client by itself: what it refuses, whatever the server says, and what it asks of its own file."""

import numpy as np
import pytest
import torch
import yaml
from real_clients import NoLink, deal_out, met_federation

from ktpfl_pipeline.core import checkpoint
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.flower import client_file
from ktpfl_pipeline.flower import member as member_module
from ktpfl_pipeline.flower.member import Member, refusal
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


def drawn(member):
    return dict(member._run.known.setting.initial_model("mlp"))


def test_a_model_of_the_server_s_is_refused_where_none_is_exchanged(begun):
    method, member, head = begun
    sentence = f"it sends a model, and {method} declares to exchange p"
    for number, (name, *arguments) in enumerate([("train", drawn(member), 1), ("evaluate", drawn(member), "train")]):
        answer = said(member, {**head, "number": 2**62 + number}, name, *arguments)
        assert sentence in answer.values["refused"]
    remembered = said(member, {**head, "number": 2**62 + 2}, "train+state", {"0.step": torch.ones(1)}, (Left(7), 1))
    assert remembered.values.get("refused") or remembered.values.get("lost")
    end = packed(drawn(member))
    assert sentence in member.answer("end", Packet({**end.values, **head}, end.tensors)).values["refused"]


def test_a_client_tells_its_owner_what_leaves_it(tmp_path, caplog):
    caplog.set_level("INFO")
    fed = met_federation(tmp_path, NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",), 1)))
    fed.executor.start(fed)
    assert f"Run {fed.executor.attendance.run[:6]} of kt_pfl begins: predictions leave this client." in caplog.text


def hello(file):
    try:
        return Member(file).answer("hello", Packet({"seed": 0, "run": "a", "number": 1})).values
    except InputError as error:
        return refusal("hello", error).values


def owners(folder):
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    np.savez(folder / "o.npz", images=images, labels=labels, clients=np.array(["smith", "jones"] * 10))
    return {"source": "npz:o.npz"}


def labels(folder):
    np.savez(folder / "o.npz", images=np.zeros((20, 8, 8), np.uint8), labels=np.full(20, -7))
    return {"source": "npz:o.npz"}


def secret(folder):
    (folder / ".client-0-secret").write_bytes(b"")
    return {}


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda folder: {"source": "npz:/home/anna/hiv_patients.npz"}, "hiv"),
        (owners, "smith"),
        (labels, "-7"),
        (secret, "secret"),
        (lambda folder: {"colour": "hiv"}, "colour"),
    ],
)
def test_what_is_wrong_with_a_client_s_own_things_stays_in_its_log(tmp_path, caplog, harm, word):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **harm(tmp_path)}))
    answered = hello(file)["refused"]
    assert answered == "its own file, samples or disk cannot be used; its log says why."
    assert word in caplog.text


def test_a_disk_that_is_full_is_not_told_with_its_paths(begun, monkeypatch):
    _, member, head = begun

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    answered = said(member, head, "train", Initial("mlp"), 1).values["refused"]
    assert answered == "its own file, samples or disk cannot be used; its log says why."


def test_a_secret_is_whole_or_not_there(tmp_path, monkeypatch):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(member_module.secrets, "token_bytes", interrupted)
        Member(file)._seal()
    assert Member(file)._seal() == Member(file)._seal()
    place = tmp_path / ".client-0-secret"
    assert (len(place.read_bytes()), place.stat().st_mode & 0o777) == (32, 0o600)


def interrupted(size):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("said", "kind"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("x86_64", "x86_64")])
def test_one_kind_of_processor_has_one_name(monkeypatch, said, kind):
    monkeypatch.setattr(member_module.platform, "machine", lambda: said)
    assert member_module.versions()["processor"] == kind


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
