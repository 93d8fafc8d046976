"""What does not leave a client: words about its own things, and its samples."""

import numpy as np
import pytest
import yaml
from real_clients import deal_out

from ktpfl_flower.client import private
from ktpfl_flower.client.member import Member
from ktpfl_flower.client.private import refusal
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError


def registered(file):
    try:
        return Member(file).answer("register", Packet({"seed": 0, "run": "a", "number": 1})).values
    except InputError as error:
        return refusal("register", error).values


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
        (lambda folder: {"color": "hiv"}, "color"),
    ],
)
def test_what_is_wrong_with_a_client_s_own_things_stays_in_its_log(tmp_path, caplog, harm, word):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **harm(tmp_path)}))
    answered = registered(file)["refused"]
    assert answered == "its own file, samples or disk cannot be used; its log states the cause."
    assert word in caplog.text


def test_a_secret_is_whole_or_not_there(tmp_path, monkeypatch):
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(private.secrets, "token_bytes", interrupted)
        registered(file)
    assert registered(file)["fingerprint"] == registered(file)["fingerprint"]
    place = tmp_path / ".client-0-secret"
    assert (len(place.read_bytes()), place.stat().st_mode & 0o777) == (32, 0o600)


def interrupted(size):
    raise KeyboardInterrupt
