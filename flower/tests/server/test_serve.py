"""The server's file, and whether the clients that are there go together."""

import json
import re

import pytest
import yaml
from client_fault_acts import server_killed
from client_faults import Killed, Stage
from real_clients import NoLink, deal_out, kept_model, run

from ktpfl_flower.alike import versions
from ktpfl_flower.client import client_file
from ktpfl_flower.operations import TRIED
from ktpfl_flower.server import attendance, federation_file
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.methods import METHODS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"methods": ["fedper"]}, "method 'fedper' is not supported with real clients. Choose from kt_pfl"),
        ({"round": 3}, "round does not exist; did you mean 'rounds'"),
        ({"public": {"source": "open_part"}}, "the server has no private samples"),
        ({"public": {"source": "npz:public.npz", "batch": 41}}, "41"),
        ({"clients": None}, "clients"),
        ({"privacy": 1}, "experiment.privacy does not exist"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(tmp_path, changes, sentence):
    files = deal_out(tmp_path, **{"method": "kt_pfl", "architectures": ("mlp",) * 2, "rounds": 1, **changes})
    with pytest.raises(InputError, match=sentence):
        run(tmp_path, NoLink(files))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"client": 0}, "has the same number"),
        ({"versions": {"torch": "1.0"}}, "install the server's versions"),
        ({"versions": {**versions(), "processor": "riscv64"}}, "use the server's kind of processor"),
        ({"shape": [1, 9, 9]}, "with image in its file"),
        ({"sizes": [1, 2]}, "sizes"),
        ({"sizes": [-1, 2, 3]}, r"node 101\.sizes"),
        ({"sizes": [2**62, 1, 1]}, r"node 101\.sizes"),
        ({"shape": [1, -8, 8]}, r"node 101\.shape"),
        ({"shape": [2**16] * 4}, "Client 1 .*which is too large"),
        ({"classes": 10**7}, r"node 101\.classes"),
        (
            {"classes": ["0", "x"]},
            "Client 1 at node 101 uses label 1 for 'x', but 1 of 2 clients use it for '1'.* class_names: ",
        ),
        ({"classes": ["0", "0"]}, r"node 101\.classes .*twice"),
        ({"kept": [2**63]}, r"node 101\.kept"),
        ({"last": 2**63}, r"node 101\.last"),
        ({"architecture": "lenett"}, "Client 1 .*'lenett' is unknown"),
        ({"architecture": "os:kill"}, "Client 1 .*'os:kill', but real clients cannot use code"),
        ({"password": "x"}, "node 101.password does not exist"),
    ],
)
def test_clients_that_do_not_go_together_are_told_of(tmp_path, values, sentence):
    def changes(kind, n, answer):
        return type(answer)({**answer.values, **values}) if kind == "register" and n == 1 else answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1), changes=changes)
    with pytest.raises(InputError, match=sentence):
        run(tmp_path, link, patience=0.01)


@pytest.mark.parametrize("method", [*(name for name in METHODS if name not in TRIED), "my_package.mine:Mine"])
def test_every_other_method_is_refused_before_anything_is_read(tmp_path, method):
    (tmp_path / "federation.yml").write_text(yaml.safe_dump({"methods": ["local", method], "experiment": {}}))
    with pytest.raises(InputError, match=f"^The method '{method}' is not supported with real clients. Choose from"):
        federation_file.read(tmp_path / "federation.yml")


class StillListed(NoLink):
    """A link on which the node of a client that was killed is listed for a while, and answers nothing."""

    def __init__(self, files, looks=10**9):
        super().__init__(files)
        self.looks = looks

    def addresses(self):
        self.looks -= 1
        return sorted([*self.nodes, *([77] if self.looks >= 0 else [])])


@pytest.mark.parametrize(("looks", "patience"), [(3, 600), (10**9, 0.2)])
def test_a_node_that_is_gone_or_silent_keeps_nobody_from_beginning(tmp_path, caplog, looks, patience):
    link = StillListed(deal_out(tmp_path, "local", ("mlp",) * 2, 1), looks)
    assert [record.cohort for record in run(tmp_path, link, patience=patience).history] == [[0, 1]]
    assert ("Nodes 77 did not reply to the request to register; the run starts" in caplog.text) == (looks > 3)


def test_late_answers_to_another_run_are_ignored(tmp_path):
    link = NoLink(deal_out(tmp_path, "local", ("mlp",) * 2, 1), changes=lambda kind, n, answer: None)
    with pytest.raises(InputError, match=r"^0 clients registered .* Nodes 100, 101 did not reply"):
        run(tmp_path, link, patience=0)
    link.changes, late = None, dict(link.belated)
    assert len(run(tmp_path, link).history) == 1
    assert late and link.arrived.keys() == late.keys()


def test_too_few_registrations_are_told_with_the_nodes_that_were_silent(tmp_path):
    link = StillListed(deal_out(tmp_path, "local", ("mlp",) * 2, 1)[:1])
    with pytest.raises(InputError, match=r"^1 client registered .* Nodes 77 did not reply"):
        run(tmp_path, link, patience=0.05)


def test_more_clients_than_are_waited_for_do_not_end_the_start(tmp_path, caplog):
    files = deal_out(tmp_path, "local", ("mlp",) * 2, 1, clients=1)
    link = NoLink(files)
    assert [record.cohort for record in run(tmp_path, link).history] == [[0]]
    assert "Client 1 at node 101 is one more than experiment.clients" in caplog.text


def test_a_client_that_went_before_all_were_there_may_come_back(tmp_path):
    class Restarted(NoLink):
        looks = 0

        def addresses(self):
            self.looks += 1
            if self.looks == 1:
                return [100]
            self.nodes.pop(100, None)
            self.nodes[102] = 0
            return super().addresses()

    link = Restarted(deal_out(tmp_path, "local", ("mlp",) * 2, 1))
    assert [record.cohort for record in run(tmp_path, link, patience=60).history] == [[0, 1]]


def test_a_client_s_numbers_of_messages_are_its_own(tmp_path):
    round_1 = ("begin", "train", "evaluate", "evaluate")

    def changes(kind, n, answer):
        last = 2**63 - 1 - len(round_1)  # a client takes no number of 2**63 or above
        return type(answer)({**answer.values, "last": last}) if kind == "register" and n == 1 else answer

    link = NoLink(deal_out(tmp_path, "local", ("mlp",) * 3, 2, deadline=0.05), changes=changes)
    history = run(tmp_path, link).history
    assert [(record.cohort, record.late) for record in history] == [([0, 1, 2], []), ([0, 2], [1])]


def test_clients_whose_samples_have_another_size_than_the_public_set_are_named(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, image={"channels": 1, "size": 12})
    told = r"Client 0 at node 100 has images of shape \[1, 8, 8\], but the public set has the shape \[1, 12, 12\]"
    with pytest.raises(InputError, match=told):
        run(tmp_path, NoLink(files), patience=0.01)


class OneByOne(NoLink):
    """A link whose clients join after so many looks each."""

    def __init__(self, files, looks):
        super().__init__(files)
        self.joining, self.nodes = dict(enumerate(looks)), {}

    def addresses(self):
        for n in [n for n, left in self.joining.items() if left == 0]:
            self.nodes[100 + n] = n
        self.joining = {n: left - 1 for n, left in self.joining.items() if left > 0}
        return super().addresses()


def waits(caplog):
    return [record.message for record in caplog.records if record.message.startswith("Waiting for clients")]


def test_who_is_waited_for_is_told_as_it_changes_and_once_a_minute(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", attendance.__name__)
    files = deal_out(tmp_path, "local", ("mlp",) * 2, 1)
    run(tmp_path, OneByOne(files, (3, 9)), patience=60)
    assert waits(caplog) == [
        f"Waiting for clients at here:1: {who}."
        for who in ("0 of 2 registered (no node is connected)", "1 of 2 registered (0)")
    ]
    caplog.clear()
    monkeypatch.setattr(attendance, "AGAIN", 0.0)
    run(tmp_path, OneByOne(files, (0, 3)))  # which takes the run up
    assert waits(caplog) == ["Waiting for clients at here:1: 1 of 2 registered (0; missing 1)."] * 3


def test_a_client_that_is_gone_as_a_run_begins_is_told_with_what_to_do(tmp_path):
    link = Stage(tmp_path, deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, quorum=0.5, deadline=0.05))
    link.at("before", "begin", 1, lambda: link.stop(1))
    told = r"^Client 1 did not reply to the request to start the run \(node unavailable\)\. .* run the same command"
    with pytest.raises(InputError, match=told):
        run(tmp_path, link)
    link.start(1)
    assert len(run(tmp_path, link).history) == 1


def test_a_client_writes_no_signs_into_the_server_s_log_that_steer_its_terminal(tmp_path, caplog):
    def changes(kind, n, answer):
        if kind == "perform" and n == 1 and [who for kind, who, *_ in link.seen if kind == "perform"].count(1) == 1:
            return Packet({**answer.values, "refused": "\x1b[2J\r\nClient 0 refused train: all is well"})
        return answer

    link = NoLink(deal_out(tmp_path, "local", ("mlp",) * 3, 1, deadline=0.05), changes=changes)
    run(tmp_path, link)
    assert (
        r"Client 1 refused the request for local training: \x1b[2J\r\nClient 0 refused train: all is well. It is"
        in caplog.text
    )


@pytest.mark.parametrize("name", ["\x1b[2J", "a" * 101])
def test_a_name_that_no_table_can_show_comes_not_in(tmp_path, name):
    def changes(kind, n, answer):
        return Packet({**answer.values, "name": name}) if kind == "register" and n == 1 else answer

    link = NoLink(deal_out(tmp_path, "local", ("mlp",) * 2, 1), changes=changes)
    with pytest.raises(InputError, match=r"node 101\.name is .*; it must be at most 100 printable characters"):
        run(tmp_path, link)


def test_too_few_clients_are_told_with_the_settings_to_change(tmp_path):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1)
    told = (
        r"^1 client registered within 0.01 s, but experiment.clients is 2\. .* raise patience \(seconds of wall time\)"
    )
    with pytest.raises(InputError, match=told):
        run(tmp_path, NoLink(files[:1]), patience=0.01)


def test_a_client_that_loses_its_model_after_the_last_round_costs_the_others_nothing(tmp_path, caplog):
    link = Stage(tmp_path, deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 2, deadline=0.05))
    kept = tmp_path / "kept"

    def lose():
        for file in (kept / "client-1").glob("*/[0-9]*.pt"):
            file.unlink()
        link.die()

    link.at("before", "evaluate", 4, lose)
    assert len(run(tmp_path, link).history) == 2
    assert kept_model(tmp_path, 0).exists() and not kept_model(tmp_path, 1).exists()
    assert "Client 1 has lost its own model" in caplog.text


def test_a_client_that_lost_its_models_since_keeps_the_one_that_it_was_told_is_its_own(tmp_path, caplog):
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1))
    run(tmp_path, link)
    own = [kept_model(tmp_path, n) for n in (0, 1)]
    before = [file.read_bytes() for file in own]
    for file in (tmp_path / "kept" / "client-1").glob("*/[0-9]*.pt"):
        file.unlink()
    link.members[1] = type(link.members[1])(link.files[1])
    run(tmp_path, link)
    assert [file.read_bytes() for file in own] == before
    assert "Client 1 has lost its own model; the model that it kept before stays as it is." in caplog.text


def interrupted(folder, method="kt_pfl"):
    """Return clients whose server was killed in the second round."""
    link = Stage(folder, deal_out(folder, method, ("mlp",) * 2, 2, deadline=0.05))
    server_killed("before", "train", 2)(link)
    with pytest.raises(Killed):
        run(folder, link)
    return link


def test_a_run_whose_clients_served_another_since_is_not_resumed_with_initial_models(tmp_path):
    link = interrupted(tmp_path)
    asked = yaml.safe_load((tmp_path / "federation.yml").read_text())
    (tmp_path / "federation.yml").write_text(yaml.safe_dump({**asked, "methods": ["local"]}))
    run(tmp_path, link)
    (tmp_path / "federation.yml").write_text(yaml.safe_dump(asked))
    said = len(link.seen)
    with pytest.raises(InputError, match=r"No client still has its models .*another run since.* delete its folder"):
        run(tmp_path, link)
    assert {kind for kind, *_ in link.seen[said:]} == {"register"}  # or the other run's models were deleted in turn


def test_a_client_without_the_models_of_the_checkpoint_is_named_once(tmp_path, caplog):
    link = interrupted(tmp_path)
    for file in (tmp_path / "kept" / "client-1").glob("*/[0-9]*.pt"):
        file.unlink()
    link.members[1] = type(link.members[1])(link.files[1])
    assert len(run(tmp_path, link).history) == 2
    assert caplog.text.count("Client 1 has lost its models of the last checkpoint") == 1


def test_class_names_of_the_server_s_file_bind_the_clients(tmp_path):
    names = [f"digit {n}" for n in range(10)]
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 1, class_names=names)
    told = (
        r"Client 0 at node 100 uses label 0 for '0', but the server's file uses it for 'digit 0'\. Put .* into its file"
    )
    with pytest.raises(InputError, match=told):
        run(tmp_path, NoLink(files), patience=0.01)


class Corrected(NoLink):
    """A link whose clients state these classes; a client that is told something is started again with the last list."""

    def __init__(self, files, stated):
        super().__init__(files, changes=self.state)
        self.stated, self.told = stated, {}

    def state(self, kind, n, answer):
        if kind == "note":
            self.told[n] = self.seen[-1][2].values["text"]
            self.stop(n)
            self.start(n)
        if kind == "register":
            own = self.stated[n]
            return Packet({**answer.values, "classes": own.pop(0) if len(own) > 1 else own[0]})
        return answer


A, B = [*"abcdefghij"], [*"abcdefghji"]


def test_a_client_whose_classes_do_not_fit_is_told_the_majority_s_list_and_may_correct_it(tmp_path, caplog):
    link = Corrected(deal_out(tmp_path, "local", ("mlp",) * 3, 1), [[A], [B, A], [A]])
    assert [record.cohort for record in run(tmp_path, link, patience=600).history] == [[0, 1, 2]]
    assert link.told.keys() == {1}
    assert "Client 1 at node 101 uses label 8 for 'j', but 2 of 3 clients use it for 'i'" in link.told[1]
    assert f"class_names: {json.dumps(A)}" in link.told[1] and "into its file" in link.told[1]
    assert caplog.text.count("Node 101 is not admitted") == 1


def test_without_a_majority_both_are_told(tmp_path):
    link = Corrected(deal_out(tmp_path, "local", ("mlp",) * 2, 1), [[A], [B, A]])
    assert [record.cohort for record in run(tmp_path, link, patience=600).history] == [[0, 1]]
    assert "contradicts those of as many other clients" in link.told[0]


def test_one_client_cannot_enlarge_the_models_of_all(tmp_path):
    many = list(map(str, range(10_000)))
    link = Corrected(deal_out(tmp_path, "local", ("mlp",) * 3, 1), [[many[:10]], [many, many[:10]], [many[:9]]])
    run(tmp_path, link, patience=600)
    assert "has 10,000 classes, but no other client has label 10 ('10')" in link.told[1]
    assert {asked.values["classes"] for kind, _, asked, _ in link.seen if kind == "begin"} == {10}


def test_the_list_of_classes_that_a_message_shows_can_be_put_into_a_file(tmp_path):
    odd = ["no", "yes", "1", "null", "a, b", "c: d", "é"]

    def changes(kind, n, answer):
        classes = odd if n else sorted(odd)
        return Packet({**answer.values, "classes": classes}) if kind == "register" else answer

    with pytest.raises(InputError) as caught:
        run(tmp_path, NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 3, 1), changes=changes), patience=0.01)
    shown = yaml.safe_load(re.search(r"class_names: \[.*?\](?=\.)", str(caught.value))[0])
    own = {"client": 0, "source": "npz:a.npz", "architecture": "mlp"}
    assert client_file.understood(client_file.ClientFile, {**own, **shown}, "x").class_names == odd


def test_a_client_that_loses_its_models_again_and_again_ends_nothing(tmp_path, caplog):
    class Forgetful(NoLink):
        def addresses(self):
            asked = [packet.values.get("operation") for _, n, packet, _ in self.seen if n == 1]
            if asked and asked[-1] == "train" and asked.count("train") < 12:
                for file in (tmp_path / "kept" / "client-1").glob("*/[0-9]*.pt"):
                    file.unlink()
                self.stop(1)
                self.start(1)
            return super().addresses()

        def answer(self, kind, n, packet):
            answer = super().answer(kind, n, packet)
            gone = n == 1 and packet.values.get("operation") == "logits"
            return Packet({"lost": "it is gone."}) if gone else answer

    link = Forgetful(deal_out(tmp_path, "kt_pfl", ("mlp",) * 3, 2, deadline=0.05, quorum=0.6))
    assert [record.cohort for record in run(tmp_path, link).history] == [[0, 2]] * 2


def far_off(link, n=1):
    """Return changes by which client n's predictions are far too large."""

    def changes(kind, who, answer):
        if who == n and answer.tensors and link.seen[-1][2].values.get("operation") == "logits":
            return Packet(answer.values, {name: z * 1e6 for name, z in answer.tensors.items()})
        return answer

    return changes


def test_a_client_that_is_off_in_every_round_is_named_now_and_then_and_reads_why_in_its_own_log(tmp_path, caplog):
    files = deal_out(tmp_path, "kt_pfl", ("mlp",) * 3, 11, deadline=0.05)
    files[1].write_text(files[1].read_text() + "name: anna\n")
    link = NoLink(files)
    link.changes = far_off(link)
    assert [record.cohort for record in run(tmp_path, link).history] == [[0, 2]] * 11
    off = "Client 1 (anna) sent an invalid reply to the request for predictions: the largest number of its predictions"
    server = [record.message for record in caplog.records if record.name == "ktpfl_flower.server.attendance"]
    first, tenth = (line for line in server if line.startswith(off))  # its number differs from round to round
    assert tenth.endswith("(This happened 10 times so far.)") and "so far" not in first
    assert kept_model(tmp_path, 1).exists()  # its initial model
    own = [record.message for record in caplog.records if record.name == "ktpfl_flower.client.member"]
    assert own and all(line.startswith(f"The server says: {off}") for line in own)


def test_with_two_clients_one_that_refuses_leaves_the_server_a_decision(tmp_path):
    def changes(kind, n, answer):
        refused = n == 1 and link.seen[-1][2].values.get("operation") == "logits"
        return Packet({"refused": "I will not."}) if refused and len(link.seen) > 20 else answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2, 3, deadline=0.05), changes=changes)
    told = (
        r"Round 3 .* \(client 1 refused the request for predictions: I will not\).* set quorum to 0\.5 to continue with"
    )
    with pytest.raises(InputError, match=told):
        run(tmp_path, link)
    assert [record.cohort for record in run(tmp_path, link, quorum=0.5).history] == [[0, 1], [0, 1], [0]]
