"""Private training at a client: what it refuses, its noise, and its budget."""

import json
from dataclasses import replace

import pytest
import torch
import yaml
from real_clients import NoLink, deal_out, in_one_process, met_federation, run

from ktpfl_flower.client.budget import Budget
from ktpfl_flower.wire import INITIAL, Left, Packet, packed
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.privacy import composed, epsilon, sampling
from ktpfl_pipeline.core.settings import LocalTraining, Privacy

pytest.importorskip("opacus", reason="opacus is not installed here: make flower")

NOISE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "delta": 1e-3}
TRAINING = {"epochs": 1, "batch_size": 8, "learning_rate": 0.05, "privacy": NOISE}
PRIVATE = LocalTraining(epochs=2, batch_size=8, privacy=Privacy(**NOISE))


def private_run(folder, method="kt_pfl", rounds=2, **beside):
    return NoLink(deal_out(folder, method, ("mlp",) * 2, rounds, training=TRAINING, **beside))


@pytest.mark.parametrize("method", ["kt_pfl", "fedavg"])
def test_a_private_run_ends_without_a_loss_and_with_each_client_s_epsilon(tmp_path, method):
    link = private_run(tmp_path, method)
    done = run(tmp_path, link)
    replies = [answer.values for _, _, asked, answer in link.seen if asked.values.get("operation") == "train_privately"]
    assert len(replies) == 4 and all(each["loss"] is None for each in replies)
    assert not any(asked.values.get("operation") == "train" for _, _, asked, _ in link.seen)
    size = done.label_counts[0][0]
    trained = len(link.members[0]._splits(0)[0])
    assert all(each["samples"] == {"": trained} for each in replies) and trained < size
    steps, share = sampling(trained, 8)
    expected = epsilon(Privacy(**NOISE), share, 2 * steps)
    assert done.history[-1].epsilon[0] == pytest.approx(expected)
    ledger = json.loads((tmp_path / "kept/client-0/privacy.json").read_text())
    assert ledger == {f"1.0 {share!r}": 2 * steps}


def test_noise_is_not_that_of_the_seed_that_all_know_and_never_the_same(tmp_path):
    link = private_run(tmp_path, "fedavg", 1)
    fed = met_federation(tmp_path, link)
    fed.executor.start()
    (head,) = {asked.values["run"] for kind, _, asked, _ in link.seen if kind == "begin"}
    packet = packed((Left(INITIAL), 1))
    made = []
    for number in (2**62, 2**62 + 1):
        asked = {"run": head, "keep": [], "wanted": True, "number": number, "operation": "train_privately"}
        made.append(link.members[0].answer("perform", Packet({**packet.values, **asked})).tensors)
    _, known = in_one_process(tmp_path)
    known.current.start_round()
    by_seed = known.train(known.initial_models(), 1)[0]
    assert not any(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert not torch.equal(made[0]["0"], next(iter(by_seed.values())))


@pytest.mark.parametrize(
    ("operation", "arguments", "sentence"),
    [
        ("train", (Left(INITIAL), 1), "its ε would not cover it"),
        ("class_means", (Left(INITIAL), 4), "its ε would not cover it"),
        ("evaluate", (Left(INITIAL), "train"), "its ε would not cover it"),
    ],
)
def test_what_epsilon_does_not_cover_is_refused(tmp_path, operation, arguments, sentence):
    link = private_run(tmp_path)
    fed = met_federation(tmp_path, link)
    fed.executor.start()
    head = next(asked.values["run"] for kind, _, asked, _ in link.seen if kind == "begin")
    asked = {**packed(arguments).values, "run": head, "keep": [], "number": 2**62, "operation": operation}
    assert sentence in link.members[0].answer("perform", Packet(asked)).values["refused"]


def test_a_method_that_epsilon_does_not_cover_is_refused_before_anything_is_sent(tmp_path):
    link = private_run(tmp_path, "fedproto")
    with pytest.raises(InputError, match=r"training\.privacy is set"):
        run(tmp_path, link)
    assert not any(kind == "perform" for kind, *_ in link.seen)


def limited(folder, most, **beside):
    link = private_run(folder, **beside)
    file = folder / "client-1.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "epsilon": most}))
    link.members[1] = type(link.members[1])(file)
    return link


def test_a_client_stops_when_its_budget_is_used_up_and_the_others_go_on(tmp_path, caplog):
    (tmp_path / "same").mkdir()
    steps, share = sampling(len(private_run(tmp_path / "same").members[1]._splits(0)[0]), 8)
    link = limited(tmp_path, 1.01 * epsilon(Privacy(**NOISE), share, 2 * steps), rounds=3, quorum=0.5, deadline=0.05)
    assert [record.cohort for record in run(tmp_path, link).history] == [[0, 1], [0, 1], [0]]
    assert "does not suffice for another training" in caplog.text


def test_a_client_with_a_budget_takes_part_in_private_runs_only(tmp_path):
    link = limited(tmp_path, 8.0)
    settings = yaml.safe_load((tmp_path / "federation.yml").read_text())
    settings["experiment"]["training"].pop("privacy")
    (tmp_path / "federation.yml").write_text(yaml.safe_dump(settings))
    with pytest.raises(InputError, match="only takes part in runs with private training"):
        run(tmp_path, link)


def test_trainings_of_all_runs_add_up(tmp_path):
    budget, (steps, share) = Budget(tmp_path / "privacy.json", None), sampling(40, 8)
    budget.spend(PRIVATE, 40)
    budget.spend(replace(PRIVATE, privacy=Privacy(2.0, delta=1e-3)), 40)
    spent = json.loads((tmp_path / "privacy.json").read_text())
    assert spent == {f"1.0 {share!r}": 2 * steps, f"2.0 {share!r}": 2 * steps}
    both = composed(1e-3, ((1.0, share, 2 * steps), (2.0, share, 2 * steps)))
    assert epsilon(PRIVATE.privacy, share, 2 * steps) < both < epsilon(PRIVATE.privacy, share, 4 * steps)
    Budget(tmp_path / "privacy.json", 1.01 * both)._read()
    with pytest.raises(InputError, match="does not suffice"):
        Budget(tmp_path / "privacy.json", 1.01 * both).spend(PRIVATE, 40)
    assert json.loads((tmp_path / "privacy.json").read_text()) == spent


@pytest.mark.parametrize("content", ["", "[1]", '{"1.0 0.2": "x"}'])
def test_a_damaged_ledger_counts_as_no_permission(tmp_path, content):
    (tmp_path / "privacy.json").write_text(content)
    with pytest.raises(InputError, match="Restore it from a backup"):
        Budget(tmp_path / "privacy.json", None).spend(PRIVATE, 40)
