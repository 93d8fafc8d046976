"""A federation of processes on this machine: SuperLink, SuperNodes, clients; in the environment of `make flower`."""

import json
import shutil

import pytest
import torch
import yaml
from loopback import federation, process, run, wait_for
from real_clients import COMPARED, deal_out, in_one_process, kept_model

pytest.importorskip("flwr", reason="flwr is not installed here: make flower")


def test_clients_in_processes_of_their_own_equal_one_process_and_end_with_their_supernodes(tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    files = deal_out(tmp_path, "kt_pfl", ("mlp", "cnn_bn"), 1, patience=600)
    for file in files:  # which saves a message, and so ten seconds
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "validation_share": 0}))
    models = [kept_model(tmp_path, n) for n in range(2)]
    secure = all(map(shutil.which, ("openssl", "ssh-keygen")))  # with TLS, and clients known by their keys
    with federation(tmp_path, files, secure=secure) as (superlink, *clients):
        log = run(tmp_path, "here", 400)
        wait_for(lambda: all(model.exists() for model in models), 10)
        superlink.kill()
        superlink.wait()
        with process(tmp_path, "another", superlink.args):  # which does not know these clients
            assert [client.wait(180) for client in clients] == [1, 1]  # so that a supervisor starts them again
    assert all("The SuperNode ended" in (tmp_path / f"{file.stem}.log").read_text() for file in files)
    here, _ = in_one_process(tmp_path)
    result = json.loads((tmp_path / "data" / "07_model_output" / "mine" / "kt_pfl" / "result.json").read_text())
    (run_of_seed,) = result["runs"]
    (record,) = run_of_seed["history"]
    assert {name: record[name] for name in COMPARED} == {name: getattr(here.history[0], name) for name in COMPARED}
    assert run_of_seed["coefficients"] == here.coefficients[-1].tolist()
    assert run_of_seed["run_id"]
    assert list((tmp_path / "data" / "08_reporting" / "mine").rglob("report.html"))
    for model, params in zip(models, here.state.models.values(), strict=True):
        kept = torch.load(model, weights_only=True)
        assert all(torch.equal(kept[name], params[name]) for name in params)
    assert "KT-pFL" in log and "Report: " in log and "token" not in log
