"""Flower's side: records, the grid, and both apps; in the environment of `make flower`."""

import shutil
import subprocess
import sys
import textwrap
import threading
from multiprocessing.connection import Client, Listener

import numpy as np
import pytest
import torch
from blank import blank_figures
from real_clients import check_same, deal_out, planned, run

pytest.importorskip("flwr", reason="flwr is not installed here: make flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from ktpfl_flower import apps, join, relay
from ktpfl_flower.alike import Data
from ktpfl_flower.client.member import Member, answered
from ktpfl_flower.server.attendance import Attendance
from ktpfl_flower.wire import Packet, from_bytes, packed, to_bytes, unpacked
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
            self.answers[name] = None if node == self.mute else self.answer(message, self.files[node])
            yield name

    def answer(self, message, file):
        said = answered(Member(file), relay.bytes_of(message.content))
        return Message(relay.record(said), reply_to=message)

    def pull_messages(self, names):
        return [self.answers[name] for name in names if self.answers[name] is not None]


@pytest.fixture(autouse=True)
def anew():
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as in a process of Flower's


def test_a_run_over_the_grid_equals_one_process(tmp_path):
    grid = Grid(deal_out(tmp_path, "kt_pfl"))
    check_same(tmp_path, run(tmp_path, apps.GridLink(grid)))


def test_the_app_of_the_server_runs_the_file_that_the_configuration_names(tmp_path, empty_store):
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    grid = Grid(deal_out(tmp_path, "local", ("mlp",) * 2, 1))
    given = {"federation": str(tmp_path / "federation.yml")}
    with blank_figures():
        apps.server(grid, Context(1, 1, {}, RecordDict(), given))
    assert (tmp_path / "data" / "07_model_output" / "mine" / "local" / "result.json").exists()


def test_who_gives_no_answer_in_time_is_named(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1)
    with pytest.raises(InputError, match=r"Nodes 1001 did not reply to the request to register"):
        run(tmp_path, apps.GridLink(Grid(files, mute=1001)), patience=0.5)
    with pytest.raises(InputError, match=r"1 client registered within 0\.1 s"):
        run(tmp_path, apps.GridLink(Grid(files[:1])), patience=0.1)


def test_packets_come_back_from_records():
    given = (torch.arange(6).reshape(2, 3), {"w": torch.randn(2), "empty": torch.zeros(0, 2)}, 1.5)
    back = unpacked(from_bytes(relay.bytes_of(relay.record(to_bytes(packed(given))))))
    assert torch.equal(back[0], given[0]) and torch.equal(back[1]["w"], given[1]["w"]) and back[2] == 1.5


OTHERS = Array(np.zeros(2))


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"message": ConfigRecord({})}),
        RecordDict({"message": ArrayRecord({})}),
        RecordDict({"message": ArrayRecord({"bytes": OTHERS})}),
    ],
)
def test_records_of_others_are_refused(content):
    with pytest.raises(ValueError, match="not a message of ktpfl_flower"):
        relay.bytes_of(content)


class Answered(Grid):
    """A grid in which node 1001 answers with these records, or nothing that is fetched with it can be read."""

    def __init__(self, content, breaks=False):
        super().__init__([None, None])
        self.content, self.breaks = content, breaks

    def push_messages(self, messages):
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__.update(_message_id=str(node), _src_node_id=1)
            self.answers[str(node)] = Message(
                self.content if node == 1001 else relay.record(to_bytes(Packet({"ok": 1}))), reply_to=message
            )
            yield str(node)

    def pull_messages(self, names):
        if self.breaks and "1001" in names:
            raise ValueError("no object")
        return super().pull_messages(names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (relay.record(bytes(8) + b"[" * 100_000), "not the JSON"),
        (RecordDict({"message": ArrayRecord({"bytes": OTHERS})}), "not a record"),
    ],
)
def test_a_malformed_answer_is_its_own_node_s_alone(content, said):
    link = apps.GridLink(Answered(content))
    names = link.send(dict.fromkeys((1000, 1001), Packet({})))
    found = {name: packet.values for name, packet in link.replies(names)}
    assert found["1000"] == {"ok": 1} and said in found["1001"]["malformed"]


def test_an_answer_that_flower_cannot_read_costs_the_others_nothing():
    link = apps.GridLink(Answered(RecordDict({}), breaks=True))
    found = {name: packet.values for name, packet in link.replies(link.send(dict.fromkeys((1000, 1001), Packet({}))))}
    assert found == {"1000": {"ok": 1}, "1001": {"malformed": "Flower cannot read it (ValueError)"}}


@pytest.mark.parametrize(
    ("breaks", "found"),
    [(False, {"ok": 2}), (True, {"malformed": "Flower cannot read it (ValueError)"})],
    ids=["there", "malformed"],
)
def test_what_waited_while_others_were_read_is_not_dropped(tmp_path, breaks, found):
    deal_out(tmp_path, "local", ("mlp",))
    link = apps.GridLink(Answered(relay.record(to_bytes(Packet({"ok": 2}))), breaks))
    replies = Attendance(link, "a", 0, planned(tmp_path), Data(), (1, 8, 8))._exchanged("begin", {1001: Packet({})}, 0)
    assert [packet.values for _, packet in replies] == [found]


def test_a_node_without_a_client_fails():
    with pytest.raises(ValueError, match=r"Start the SuperNode with python -m ktpfl_flower\.join"):
        relay.answer(to_bytes(Packet({})), Context(1, 1, {}, RecordDict(), {}))


def test_a_file_that_cannot_be_used_is_told_of_before_anything_is_started_and_without_kedro_and_mlflow(tmp_path):
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    file.write_text(file.read_text().replace("mlp", "lenett"))
    program = """
        import runpy, sys
        for name in ("kedro", "mlflow", "pandas", "scipy", "sklearn", "matplotlib", "omegaconf", "optuna"):
            sys.modules[name] = None
        runpy.run_module("ktpfl_flower.join", run_name="__main__")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), file, "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "'lenett' is unknown" in done.stderr and "Traceback" not in done.stderr


def test_the_app_that_flower_runs_loads_no_torch_and_no_samples():
    program = """
        import sys
        for name in ("torch", "ktpfl_pipeline", "ktpfl_flower.client"):
            sys.modules[name] = None
        import ktpfl_flower.relay
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_the_app_asks_the_client_s_process_by_its_socket_and_one_that_is_gone_raises(tmp_path):
    (file,) = deal_out(tmp_path, "local", ("mlp",))
    place, message = str(tmp_path / "s"), to_bytes(Packet({"kind": "register", "seed": 0, "number": 5}))
    context = Context(1, 1, {"client": place}, RecordDict(), {})
    with pytest.raises(OSError):
        relay.answer(message, context)
    with Listener(place, "AF_UNIX") as listener:
        threading.Thread(target=join.serve, args=(Member(file), listener), daemon=True).start()
        said = from_bytes(relay.answer(message, context)).values
        assert said["client"] == 0
        odd = from_bytes(relay.answer(bytes(9), context)).values
        assert "not the JSON of a message" in odd["refused"]
        with Client(place, "AF_UNIX") as stranger:
            stranger.send_bytes(b"no frame")
        assert from_bytes(relay.answer(message, context)).values["client"] == 0


def test_flower_s_own_words_are_not_passed_on():
    class Failing(Answered):
        def push_messages(self, messages):
            for name, message in zip(super().push_messages(messages), messages, strict=True):
                paragraph = "Error: Message Unavailable - " + "The requested message could not be found. " * 9
                self.answers[name] = Message(Error(code=3, reason=paragraph), reply_to=message)
                yield name

    link = apps.GridLink(Failing(relay.record(to_bytes(Packet({})))))
    found = [packet.values for _, packet in link.replies(link.send({1001: Packet({})}))]
    assert found == [{"silent": "no answer before the message expired"}]
