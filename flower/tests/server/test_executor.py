"""Real clients without Flower between them: the same numbers, nothing given away, and what is said of bad answers."""

import math
import shutil
from dataclasses import replace

import leaks
import pytest
import torch
from client_fault_acts import server_killed
from client_faults import Killed, Stage
from real_clients import NoLink, check_same, deal_out, in_one_process, met_federation, run

from ktpfl_flower import operations
from ktpfl_flower.client.member import Member
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core import augmentation
from ktpfl_pipeline.core.client import operations as client_operations
from ktpfl_pipeline.core.errors import ClientsMissing, InputError
from ktpfl_pipeline.core.rounds.evaluation import pooled_test

ALLOWED = {torch.float32, torch.float64, torch.int64, torch.bool}
FIRST = ("kt_pfl", "fedmd", "fedproto", "feddf", "fedavg")


@pytest.mark.parametrize("method", [*FIRST, *(name for name in operations.TRIED if name not in FIRST)])
def test_equals_one_process_and_gives_away_what_is_declared(tmp_path, method, monkeypatch):
    declared, augmented, watching = operations.exchanges(method), [], leaks.Watching()

    def flipped(images):
        augmented.append(images[:1].flip(-1))
        return images.flip(-1)

    monkeypatch.setattr(augmentation, "make", lambda wanted, shape: flipped)
    mixed = method in FIRST and method != "fedavg"
    files = deal_out(tmp_path, method, ("mlp", "cnn_bn", "mlp") if mixed else ("mlp",) * 2, 2 if method in FIRST else 1)
    link = NoLink(files)
    fed = check_same(tmp_path, run(tmp_path, link), watching)
    changed = [piece for images in augmented for piece in leaks.pictures(images)]
    for n, client in fed.by_id.items():
        sent = link.said_by(n)
        assert leaks.held(sent, [*leaks.private((client.train, client.validation, client.test)), *changed]) == 0
        assert (leaks.held(sent, watching.models[n]) > 0) == ("parameters" in declared)
        assert (leaks.held(sent, watching.knowledge[n]) > 0) == bool(watching.knowledge[n])
    for kind, _, asked, answer in link.seen:
        assert kind == "perform" or not answer.tensors
        assert kind == "begin" or not any(tensor.dtype == torch.uint8 for tensor in asked.tensors.values())
        assert {tensor.dtype for tensor in answer.tensors.values()} <= ALLOWED
        name = asked.values.get("operation")
        if answer.tensors and name != "evaluate":
            assert "parameters" in declared or operations.find(name).gives in declared
            model = isinstance(answer.values["value"], dict) and "model" in answer.values["value"]
            assert model == (name in ("train", "distill") and "parameters" in declared)


SECRETS = {
    "an image": lambda client, model: client.train.inputs[3].flatten() / 127.5 - 1,
    "labels": lambda client, model: client.train.labels.float(),
    "a model": lambda client, model: next(iter(model.values())).flatten(),
}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_client_that_hides_a_secret_in_its_predictions_is_found(tmp_path, secret):
    def changes(kind, n, answer):
        if n == 1 and "0" in answer.tensors and answer.tensors["0"].shape == (30, 10):
            values = SECRETS[secret](fed.by_id[1], model)[:300]
            answer.tensors["0"] = torch.cat([values, torch.ones(300 - len(values))]).reshape(30, 10)
        return answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1), changes=changes)
    _, fed = in_one_process(tmp_path, watching := leaks.Watching())
    model = fed.initial_model("mlp")
    watching.models[1] += leaks.weights(model)
    run(tmp_path, link)
    private = [*leaks.private((fed.by_id[1].train,)), *watching.models[1]]
    assert leaks.held(link.said_by(1), private) > 0
    assert leaks.held(link.said_by(0), private) == 0


MOMENTS = {"epochs": 1, "batch_size": 8, "learning_rate": 0.05, "momentum": 0.9, "optimizer_state": "kept"}


def test_every_message_may_find_a_new_process_and_moments_stay_too(tmp_path):
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp", "cnn_bn"), 2, training=MOMENTS), restarts=True)
    check_same(tmp_path, run(tmp_path, link))
    given = [asked.values["operation"] for kind, _, asked, answer in link.seen if answer.tensors]
    assert given.count("logits") == 4 and {*given} == {"logits", "evaluate"}
    kept = list((tmp_path / "kept" / "client-0").glob("*/*.pt"))
    assert len(kept) <= 6  # the last models, moments and what was told; not those of every step


@pytest.mark.parametrize("method", ["kt_pfl", "fedavg"])
def test_moments_outlive_the_server(tmp_path, method):
    link = Stage(tmp_path, deal_out(tmp_path, method, ("mlp",) * 2, 3, training=MOMENTS))
    server_killed("after", "train", 2)(link)
    with pytest.raises(Killed):
        run(tmp_path, link)
    check_same(tmp_path, run(tmp_path, link))
    trained = [asked.values["state"] for _, n, asked, _ in link.seen if n == 0 and "state" in asked.values]
    assert trained.count(0) == 1  # only the first round starts without moments


def test_a_client_that_lost_its_models_goes_on_as_one_that_joins(tmp_path, caplog):
    files = deal_out(tmp_path, "kt_pfl")

    def changes(kind, n, answer):
        asked = [packet.values.get("operation") for _, client, packet, _ in link.seen if client == 1]
        if n == 1 and asked[-1] == "logits" and asked.count("logits") == 2:
            shutil.rmtree(tmp_path / "kept" / "client-1")
            link.members[1] = Member(files[1])
            return Packet({"lost": "it is gone."})
        return answer

    link = NoLink(files, changes=changes)
    history = run(tmp_path, link).history
    assert [record.cohort for record in history] == [[0, 1, 2]] * 2  # round 2 was started again
    assert "Client 1 has lost its stored models" in caplog.text
    first = [asked for kind, n, asked, _ in link.seen if n == 1 and asked.values.get("operation") == "train"][-1]
    assert first.values["value"]["tuple"] == [{"left": 0}, 2]


def test_a_client_that_was_started_again_is_taken_over_while_its_old_node_is_listed(tmp_path, caplog):
    class Restarted(NoLink):
        def answer(self, kind, n, packet):
            if n == 1 and 900 in self.nodes:
                return Packet({"silent": "node unavailable"})
            answer = super().answer(kind, n, packet)
            if [asked.values.get("operation") for _, who, asked, _ in self.seen if who == 1].count("evaluate") == 4:
                self.nodes[900] = 2  # where the process that is started again is found
                self.members.append(Member(self.files[1]))
            return answer

    link = Restarted(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 3))
    done = run(tmp_path, link)
    assert "has the same number" not in caplog.text
    assert any(n == 2 and asked.values.get("operation") == "train" for _, n, asked, _ in link.seen)
    assert [record.late for record in done.history] == [[]] * 3


BAD = {
    "no value": lambda packet: replace(packet, values={}),
    "a value too many": lambda packet: replace(packet, tensors={**packet.tensors, "more": torch.zeros(1)}),
    "a missing tensor": lambda packet: replace(packet, tensors={}),
    "predictions of fewer samples": lambda packet: replace(packet, tensors={"0": packet.tensors["0"][1:]}),
    "predictions in integers": lambda packet: replace(packet, tensors={"0": packet.tensors["0"].long()}),
    "text": lambda packet: Packet({**packet.values, "value": "a" * 1000}),
    "another kind": lambda packet: Packet({**packet.values, "value": {"left": 3}}),
    "a loss in text": lambda packet: replace(packet, values={**packet.values, "loss": "low"}),
    "a number without end": lambda packet: Packet({**packet.values, "value": {"left": float("inf")}}),
    "a negative count": lambda packet: replace(packet, values={**packet.values, "samples": {"": -1}}),
    "a count beyond all": lambda packet: replace(packet, values={**packet.values, "samples": {"": 10**400}}),
    "samples of another model": lambda packet: replace(packet, values={**packet.values, "samples": {"cnn": 5}}),
}


@pytest.mark.parametrize("bad", BAD)
def test_an_answer_that_is_none_names_its_client(tmp_path, bad):
    def changes(kind, n, answer):
        return BAD[bad](answer) if n == 1 and answer.tensors else answer

    fed = met_federation(tmp_path, NoLink(deal_out(tmp_path, "fedmd", ("mlp",) * 2, 1), changes=changes))
    with pytest.raises(ClientsMissing, match="Client 1 sent an invalid reply to the request for predictions") as caught:
        fed.logits(fed.initial_models(), fed.public_batch(1))
    assert list(caught.value.found) == [1]


def test_a_refusal_of_who_could_not_read_the_question_counts(tmp_path):
    def changes(kind, n, answer):
        return Packet({"refused": "it is not a message of ktpfl_pipeline."}) if kind == "begin" and n == 1 else answer

    link = NoLink(deal_out(tmp_path, "fedmd", ("mlp",) * 2, 1, on_unsound="stop"), changes=changes)
    with pytest.raises(
        InputError,
        match=r"Client 1 refused the request to start the run: it is not a message of ktpfl_pipeline\. Check its",
    ):
        run(tmp_path, link)


def test_who_says_that_it_diverged_is_restored(tmp_path):
    def changes(kind, n, answer):
        found = n == 1 and answer.values.get("finite") is not None
        return Packet({**answer.values, "finite": False, "loss": math.nan}, answer.tensors) if found else answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, on_divergence="restore"), changes=changes)
    (record,) = run(tmp_path, link).history
    assert (record.cohort, record.diverged) == ([0, 1], [1])


def test_what_asks_for_private_samples_is_refused(tmp_path):
    link = NoLink(deal_out(tmp_path, "feddf", ("mlp",) * 2, 1))
    fed = met_federation(tmp_path, link)
    inputs = fed.by_id[0].train.inputs
    with pytest.raises(InputError, match="is not supported with real clients"):
        fed.run("predict", client_operations.cross_logits, {0: (fed.initial_model("mlp"), inputs)})
    with pytest.raises(InputError, match="Private samples would have to leave their client"):
        fed.run("predict", client_operations.logits, {0: (fed.initial_model("mlp"), fed.by_id[0].train.labels)})
    for asked in (lambda: fed.cross_logits(fed.initial_models(), "test"), lambda: pooled_test(fed, 10)):
        with pytest.raises(InputError, match="Private samples would have to leave their client"):
            asked()


def test_a_model_that_stays_cannot_be_opened(tmp_path):
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1))
    fed = met_federation(tmp_path, link)
    trained = fed.train(fed.initial_models(), 1)
    with pytest.raises(InputError, match="Client 1's model would have to leave the client"):
        trained[1].open()
    assert trained[1].keys() == fed.initial_model("mlp").keys()
