"""Features at real clients: rows of a table and series, standardized by the public samples."""

import numpy as np
import pytest
import torch
import yaml
from real_clients import NoLink, check_same, run
from real_features import COLUMNS, dealt, features

from ktpfl_flower.alike import scale_of
from ktpfl_flower.client.member import Member
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.standardization import Standardization


@pytest.mark.parametrize(
    ("method", "architectures", "shape"),
    [
        ("kt_pfl", ("mlp", "mlp", "mlp"), (4,)),
        ("fedproto", ("mlp", "mlp"), (4,)),
        ("kt_pfl", ("cnn1d", "mlp"), (4, 16)),
        ("fedavg", ("cnn1d",) * 2, (4, 16)),
    ],
)
def test_a_run_on_features_equals_one_process_with_the_public_samples_scale(
    tmp_path, method, architectures, shape, monkeypatch
):
    link = NoLink(dealt(tmp_path, method, architectures, shape))
    there = run(tmp_path, link)
    scale = scale_of(torch.from_numpy(np.load(tmp_path / "public.npz")["features"]))
    monkeypatch.setattr(Standardization, "of", lambda *given: scale)
    check_same(tmp_path, there)
    begun = [asked.tensors for kind, _, asked, _ in link.seen if kind == "begin"]
    assert begun and all(each["mean"].equal(scale.mean) and each["std"].equal(scale.std) for each in begun)
    assert abs(float(begun[0]["public"].mean())) < 1e-3  # public samples are standardized, too


def test_nothing_about_a_client_s_features_but_their_number_and_a_fingerprint_is_told(tmp_path):
    link = NoLink(dealt(tmp_path, "local", ("mlp",) * 2, rounds=1))
    run(tmp_path, link)
    said = [answer.values for kind, _, _, answer in link.seen if kind == "register"]
    assert all(each["shape"] == [4] and each["data"]["kind"] == "features" for each in said)
    assert "hba1c" not in str(said)


@pytest.mark.parametrize("columns", [COLUMNS[::-1], ("age", "sex=f", "sex=m", "bmi")])
def test_a_client_with_other_columns_is_not_admitted(tmp_path, columns):
    files = dealt(tmp_path, "local", ("mlp",) * 2, rounds=1)
    inputs, labels = features(1, 40, (4,))
    np.savez(tmp_path / "clients/1/data.npz", features=inputs, labels=labels, columns=np.array(columns))
    with pytest.raises(InputError, match="Client 1 at node 101 has other columns than the public set"):
        run(tmp_path, NoLink(files), patience=0.01)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda tensors: tensors.pop("std"), "did not send the mean and the standard deviation"),
        (lambda tensors: tensors.update(std=torch.zeros(4, dtype=torch.float64)), "that is not above 0"),
        (lambda tensors: tensors.update(mean=torch.full((4,), torch.nan)), "did not send the mean"),
        (lambda tensors: tensors.update(mean=torch.zeros(3)), "did not send the mean"),
    ],
)
def test_a_client_refuses_a_scale_that_does_not_fit(tmp_path, change, sentence):
    class Other(NoLink):
        def before(self, kind, n, packet):
            if kind == "begin":
                self.asked = packet

    link = Other(dealt(tmp_path, "local", ("mlp",) * 2, rounds=1))
    run(tmp_path, link)
    change(link.asked.tensors)
    del link.asked.values["kind"]
    assert sentence in link.members[1].answer("begin", link.asked).values["refused"]


def test_what_standardization_would_hide_is_told_before_a_client_joins(tmp_path):
    file, *_ = dealt(tmp_path, "local", ("mlp",) * 2)
    inputs, labels = features(0, 40, (4,))
    inputs[3, 0] = 1e30
    np.savez(tmp_path / "clients/0/data.npz", features=inputs, labels=labels, columns=np.array(COLUMNS))
    with pytest.raises(InputError, match="'age'"):
        Member(file).check()


def test_a_table_cannot_have_the_settings_of_images(tmp_path):
    file, *_ = dealt(tmp_path, "local", ("mlp",) * 2)
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "image": {"channels": 1, "size": 8}}))
    with pytest.raises(InputError, match=r"image is set, but npz:.* has features"):
        Member(file).check()
