"""Predictions that travel encoded: the same numbers as in one process, and fewer bytes."""

import pytest
import torch
from real_clients import NoLink, check_same, deal_out, run

from ktpfl_flower import codes
from ktpfl_flower.server import federation_file
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.knowledge import channel
from ktpfl_pipeline.core.settings import Knowledge

SMALLER = {"float16": 2, "uint8": 4, "top_k": 4}
"""How many times fewer bytes the predictions of 30 samples and 10 classes take at least, without headers."""


def replies(link, name):
    return [(asked, answer) for _, _, asked, answer in link.seen if asked.values.get("operation") == name]


@pytest.mark.parametrize("encoding", SMALLER)
@pytest.mark.parametrize("method", ["kt_pfl", "fedmd"])
def test_a_run_equals_one_process_and_sends_fewer_bytes(tmp_path, encoding, method):
    knowledge = {"encoding": encoding, "k": 2}
    link = NoLink(deal_out(tmp_path, method, ("mlp", "cnn_bn"), 2, knowledge=knowledge))
    check_same(tmp_path, run(tmp_path, link))
    uploads, teachers = replies(link, "logits_encoded"), replies(link, "distill_encoded")
    assert len(uploads) == len(teachers) == 4
    assert not replies(link, "logits") and not replies(link, "distill")
    for packet in [answer for _, answer in uploads] + [asked for asked, _ in teachers]:
        coded = [tensor for tensor in packet.tensors.values() if tensor.dtype != torch.int64]
        assert sum(tensor.nbytes for tensor in coded) <= 30 * 10 * 4 / SMALLER[encoding] + 8


def test_models_that_the_server_was_sent_are_asked_for_whole_predictions(tmp_path):
    link = NoLink(deal_out(tmp_path, "feddf", ("mlp",) * 2, 1, knowledge={"encoding": "uint8"}))
    check_same(tmp_path, run(tmp_path, link))
    assert not replies(link, "logits_encoded")


@pytest.mark.parametrize(
    ("knowledge", "sentence"),
    [
        ({"encoding": "sign"}, "encoding is sign, whose error feedback"),
        ({"encoding": "uint8", "cache": 2}, r"knowledge\.cache is 2; with real clients and an encoding it must be 0"),
        ({"encoding": "uint8", "select": 0.5}, r"knowledge\.select is 0\.5; with real clients"),
    ],
)
def test_what_clients_would_have_to_remember_is_refused(knowledge, sentence):
    given = {"public": {"source": "npz:public.npz"}, "clients": 2, "knowledge": knowledge}
    with pytest.raises(InputError, match=sentence):
        federation_file.parsed(given)


@pytest.mark.parametrize("encoding", SMALLER)
@pytest.mark.parametrize("change", [lambda z: z[..., :1], lambda z: z.double(), lambda z: torch.full_like(z, 200)])
def test_encoded_predictions_that_are_none_cost_their_client_the_round(tmp_path, encoding, change):
    def changes(kind, n, answer):
        if n == 1 and link.seen[-1][2].values.get("operation") == "logits_encoded":
            last = max(answer.tensors)
            return Packet(answer.values, {**answer.tensors, last: change(answer.tensors[last])})
        return answer

    knowledge = {"encoding": encoding, "k": 2}
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 3, 1, knowledge=knowledge, deadline=0.05), changes=changes)
    (record,) = run(tmp_path, link).history
    whole = encoding == "uint8" and change(torch.zeros(2, 2, dtype=torch.uint8)).dtype == torch.uint8
    accepted = whole and change(torch.zeros(2, 2, dtype=torch.uint8)).shape == (2, 2)  # all levels are allowed
    assert record.cohort == ([0, 1, 2] if accepted else [0, 2])


def test_a_client_refuses_teachers_that_it_cannot_decode(tmp_path):
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, knowledge={"encoding": "top_k", "k": 2}))
    run(tmp_path, link)
    asked, _ = replies(link, "distill_encoded")[0]
    asked.tensors["1"] += 100
    asked.values["number"] = 2**62
    del asked.values["kind"]
    assert "names a class that does not exist" in link.members[0].answer("perform", asked).values["refused"]


def test_many_classes_have_two_bytes():
    values = torch.softmax(torch.randn(3, 300).double(), dim=1)
    parts = channel.encoded(Knowledge("top_k", k=2), values, logits=False)
    assert parts[1].dtype == torch.uint16
    assert codes.decoded(Knowledge("top_k", k=2), parts, (3, 300), logits=False).shape == (3, 300)
