"""The model that a client keeps: one per method, which can be loaded and used by itself."""

import json

import numpy as np
import pytest
import torch
from real_clients import NoLink, deal_out, in_one_process, kept_model, run
from real_features import COLUMNS, dealt, features

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.kept import ABOUT, WEIGHTS, load
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.standardization import Standardization


def test_a_kept_model_predicts_what_it_did_in_the_run(tmp_path):
    names = [f"digit {n}" for n in range(10)]
    files = deal_out(tmp_path, "kt_pfl", ("mlp", "cnn_bn"), 2)
    for file in files:
        file.write_text(file.read_text() + f"name: {file.stem}\nclass_names: {json.dumps(names)}\n")
    run(tmp_path, NoLink(files))
    here, fed = in_one_process(tmp_path)
    theirs = fed.cross_logits(methods.create("kt_pfl").personal(here.state, fed.by_id, fed), "test")
    for n, client in fed.by_id.items():
        model = load(kept_model(tmp_path, n).parent)
        assert (model.about["method"], model.about["name"], model.class_names) == ("kt_pfl", f"client-{n}", names)
        assert torch.allclose(model.predict(client.test.inputs), theirs[n][:, n].softmax(dim=1), atol=1e-6)
        images = model.inputs.of_file(tmp_path / f"clients/{n}/data.npz")
        assert images.shape == (80, 1, 8, 8) and model.predict(images).argmax(dim=1).shape == (80,)


def test_a_kept_model_takes_features_in_their_units(tmp_path, monkeypatch):
    run(tmp_path, NoLink(dealt(tmp_path, "fedavg", ("mlp",) * 2)))
    model = load(kept_model(tmp_path, 1).parent)
    inputs, labels = features(1, 40, (4,))
    assert [*model.inputs.columns] == list(COLUMNS)
    assert (model.predict(inputs).argmax(dim=1).numpy() == labels).mean() > 0.8
    scale = Standardization.of(torch.from_numpy(np.load(tmp_path / "public.npz")["features"]), [torch.arange(40)])
    expected = model.module(scale(torch.from_numpy(inputs))).softmax(dim=1)
    assert torch.equal(model.predict(inputs), expected)
    with pytest.raises(InputError, match=r"Input 2 \(from 0\) has a value that is not finite"):
        model.predict(np.where(np.arange(40)[:, None] == 2, np.nan, inputs))


@pytest.mark.parametrize("name", [ABOUT, WEIGHTS])
@pytest.mark.parametrize("content", [None, b"{", b"{}"])
def test_a_folder_without_a_model_is_told_of(tmp_path, name, content):
    run(tmp_path, NoLink(deal_out(tmp_path, "local", ("mlp",) * 2, 1)))
    folder = kept_model(tmp_path, 0).parent
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match="has no model that can be used"):
        load(folder)
