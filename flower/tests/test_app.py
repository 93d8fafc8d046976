"""Flower's side: records, the grid, and both apps; in the environment of `make flower`."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from real_clients import check_same, deal_out, run

pytest.importorskip("flwr", reason="flwr is not installed here: make flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from ktpfl_flower import app
from ktpfl_flower.wire import Packet, packed, unpacked
from ktpfl_pipeline.core.errors import InputError


class Grid:
    """Flower's grid, whose nodes answer in this process; one may be mute."""

    def __init__(self, files, mute=None):
        self.files, self.mute, self.answers = dict(enumerate(files, start=1000)), mute, {}

    def get_node_ids(self):
        return [*self.files]

    def push_messages(self, messages):
        for place, message in enumerate(messages):
            name, node = f"{len(self.answers)}-{place}", message.metadata.dst_node_id
            message.metadata.__dict__.update(_message_id=name, _src_node_id=1)
            context = Context(1, node, {"client": str(self.files[node])}, RecordDict(), {})
            self.answers[name] = None if node == self.mute else app.client(message, context)
            yield name

    def pull_messages(self, names):
        return [self.answers[name] for name in names if self.answers[name] is not None]


@pytest.fixture(autouse=True)
def anew():
    app.member.cache_clear()
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as in a process of Flower's


def test_a_run_over_the_grid_equals_one_process(tmp_path):
    grid = Grid(deal_out(tmp_path, "kt_pfl"))
    check_same(tmp_path, run(tmp_path, app.GridLink(grid)))


def test_the_app_of_the_server_runs_the_file_that_the_configuration_names(tmp_path):
    grid = Grid(deal_out(tmp_path, "local", ("mlp",) * 2, 1))
    given = {"federation": str(tmp_path / "federation.yml"), "patience": 60.0}
    app.server(grid, Context(1, 1, {}, RecordDict(), given))
    assert (tmp_path / "results" / "history.json").exists()


def test_who_gives_no_answer_in_time_is_named(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1)
    with pytest.raises(InputError, match=r"No answer to hello came from nodes 1001"):
        run(tmp_path, app.GridLink(Grid(files, mute=1001)), patience=0.5)
    with pytest.raises(InputError, match=r"1 clients were there within 0\.1 s"):
        run(tmp_path, app.GridLink(Grid(files[:1])), patience=0.1)


def test_packets_come_back_from_records():
    given = (torch.arange(6).reshape(2, 3), {"w": torch.randn(2), "empty": torch.zeros(0, 2)}, 1.5)
    back = unpacked(app.packet_of(app.record(packed(given))))
    assert torch.equal(back[0], given[0]) and torch.equal(back[1]["w"], given[1]["w"]) and back[2] == 1.5


VALUES = ConfigRecord({"json": "{}"})
OBJECT = Array("object", (1,), app.STYPE, b"12345678")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (RecordDict({}), "no message of ktpfl_pipeline"),
        (RecordDict({"values": VALUES, "tensors": ConfigRecord({})}), "no message of ktpfl_pipeline"),
        (RecordDict({"values": ConfigRecord({"json": "[1]"}), "tensors": ArrayRecord({})}), "no JSON of a message"),
        (RecordDict({"values": ConfigRecord({"json": "{"}), "tensors": ArrayRecord({})}), "no JSON of a message"),
        (RecordDict({"values": VALUES, "tensors": ArrayRecord({"0": Array(np.zeros(2))})}), "written as 'numpy"),
        (RecordDict({"values": VALUES, "tensors": ArrayRecord({"0": OBJECT})}), "tensor of 'object'"),
    ],
)
def test_records_of_others_are_refused(tmp_path, content, sentence):
    with pytest.raises(InputError, match=sentence):
        app.packet_of(content)
    (file,) = deal_out(tmp_path, "kt_pfl", ("mlp",))
    message = Message(content, 1, "query.hello")
    message.metadata.__dict__.update(_message_id="1", _src_node_id=1)
    reply = app.client(message, Context(1, 1, {"client": str(file)}, RecordDict(), {}))
    assert sentence in app.packet_of(reply.content).values["refused"]


class Answered(Grid):
    """A grid in which node 1001 answers with these records, or nothing that came with it can be read."""

    def __init__(self, content, breaks=False):
        super().__init__([None, None])
        self.content, self.breaks = content, breaks

    def push_messages(self, messages):
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__.update(_message_id=str(node), _src_node_id=1)
            self.answers[str(node)] = Message(
                self.content if node == 1001 else app.record(Packet({"ok": 1})), reply_to=message
            )
            yield str(node)

    def pull_messages(self, names):
        if self.breaks:
            raise ValueError("no object")
        return super().pull_messages(names)


ODD_SHAPE = Array("float32", (1,) * 65, app.STYPE, b"1234")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (RecordDict({"values": ConfigRecord({"json": "[" * 100_000}), "tensors": ArrayRecord({})}), "no JSON"),
        (RecordDict({"values": VALUES, "tensors": ArrayRecord({"0": ODD_SHAPE})}), "tensor of shape"),
    ],
)
def test_a_malformed_answer_is_its_own_node_s_alone(content, said):
    link = app.GridLink(Answered(content))
    found = {node: packet.values for node, packet in link.ask("hello", dict.fromkeys((1000, 1001), Packet({})), 5)}
    assert found[1000] == {"ok": 1} and said in found[1001]["silent"]


def test_answers_that_flower_cannot_read_are_silence(caplog):
    link = app.GridLink(Answered(RecordDict({}), breaks=True))
    found = [packet.values for _, packet in link.ask("hello", {1001: Packet({})}, 0.3)]
    assert found == [{"silent": "none within 0.3 s"}] and "cannot be read" in caplog.text


def test_what_waited_while_others_were_read_is_not_dropped():
    link = app.GridLink(Answered(app.record(Packet({"ok": 2}))))
    assert [packet.values for _, packet in link.ask("hello", {1001: Packet({})}, 0)] == [{"ok": 2}]


def test_a_node_without_a_file_says_so():
    message = Message(app.record(Packet({"seed": 0})), 1, "query.hello")
    message.metadata.__dict__.update(_message_id="1", _src_node_id=1)
    reply = app.client(message, Context(1, 1, {}, RecordDict(), {}))
    assert "--node-config" in app.packet_of(reply.content).values["refused"]


def test_simulated_nodes_find_their_clients_by_a_pattern(tmp_path):
    deal_out(tmp_path, "local", ("mlp",) * 2, 1)
    pattern = str(tmp_path / "client-*.yml")

    def said(number, pattern):
        message = Message(app.record(Packet({"seed": 0})), 1, "query.hello")
        message.metadata.__dict__.update(_message_id="1", _src_node_id=1)
        context = Context(1, 1, {"partition-id": number}, RecordDict(), {"clients": pattern})
        return app.packet_of(app.client(message, context).content).values

    assert [said(number, pattern)["client"] for number in (0, 1)] == [0, 1]
    assert "finds 2 files" in said(2, pattern)["refused"]


def test_a_client_needs_neither_kedro_nor_mlflow():
    program = """
        import sys
        for name in ("kedro", "mlflow", "pandas", "scipy", "sklearn", "matplotlib", "omegaconf", "optuna"):
            sys.modules[name] = None
        import ktpfl_flower.join
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)
