"""Texts at real clients: one vocabulary at the server and all clients, and the same numbers as in one process."""

import numpy as np
import pytest
import yaml
from real_clients import NoLink, check_same, deal_out, kept_model, run

from ktpfl_flower.client.member import Member
from ktpfl_pipeline.core.errors import InputError

WORDS = ["[PAD]", *(f"word{number}" for number in range(1, 31))]
OTHER = [*WORDS[:1], *reversed(WORDS[1:])]


def written(place, kind, seed, size, vocabulary=WORDS, padding=0, **arrays):
    """Write labeled texts of 12 tokens; the tokens of each of two classes differ."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(size) % 2
    ids = rng.integers(1, 15, (size, 12)) + 15 * labels[:, None]
    known = {} if vocabulary is None else {"vocabulary": np.array(vocabulary)}
    known |= {} if padding is None else {"padding": np.array(padding)}
    np.savez(place, **{kind: ids.astype(np.uint8)}, **known, labels=labels, **arrays)


def texts(folder, method, architectures, rounds=1):
    """Write a federation of texts, and return the clients' files."""
    files = deal_out(folder, method, architectures, rounds)
    for n in range(len(files)):
        written(folder / f"clients/{n}/data.npz", "tokens", n, 40)
    written(folder / "public.npz", "tokens", 9, 40)
    return files


@pytest.mark.parametrize(
    ("method", "architectures"),
    [
        ("kt_pfl", ("fasttext", "text_cnn", "fasttext")),
        ("feddf", ("fasttext", "text_cnn")),
        ("fedavg", ("text_gru",) * 2),
    ],
)
def test_a_run_on_texts_equals_one_process(tmp_path, method, architectures):
    link = NoLink(texts(tmp_path, method, architectures, rounds=2))
    check_same(tmp_path, run(tmp_path, link))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"vocabulary": OTHER},
            r"Client 1 \(anna\) at node 101 has another vocabulary than the .* \(31 tokens",
        ),
        ({"vocabulary": [*WORDS, "more"]}, r"Client 1 .* \(32 tokens, .*; the public set: 31 tokens"),
        ({"padding": None}, r"Client 1 .* \(31 tokens, no padding, .*; the public set: 31 tokens, padding id 0"),
        ({"vocabulary": None}, "refused to register: its own file, samples or disk cannot be used"),
        ({"kind": "images"}, "Client 1 .* has images, but the public set has tokens"),
    ],
)
def test_a_client_with_another_kind_or_vocabulary_is_refused_by_name_and_keeps_nothing(tmp_path, changes, sentence):
    files = texts(tmp_path, "kt_pfl", ("fasttext",) * 2)
    data = tmp_path / "clients/1/data.npz"
    if "kind" in changes:
        np.savez(data, images=np.zeros((40, 8, 8), np.uint8), labels=np.arange(40) % 2)
    else:
        written(data, "tokens", 1, 40, **changes)
    files[1].write_text(yaml.safe_dump({**yaml.safe_load(files[1].read_text()), "name": "anna"}))
    link = NoLink(files)
    with pytest.raises(InputError, match=sentence):
        run(tmp_path, link)
    assert {kind for kind, *_ in link.seen} <= {"register", "note"}
    assert not any(kept_model(tmp_path, n).parents[1].exists() for n in range(2))


def test_what_leaves_a_client_has_a_fingerprint_of_its_vocabulary_and_no_word(tmp_path):
    link = NoLink(texts(tmp_path, "local", ("fasttext",) * 2))
    run(tmp_path, link)
    sent = [answer.values for kind, _, _, answer in link.seen if kind == "register"]
    assert [values["data"]["kind"] for values in sent] == ["tokens"] * 2
    assert sent[0]["data"] == sent[1]["data"] and sent[0]["data"]["vocabulary"]["size"] == len(WORDS)
    assert all("word1" not in str(values) for values in sent)


def test_a_client_that_comes_back_with_another_vocabulary_is_not_admitted(tmp_path, caplog):
    class Reordered(NoLink):
        """A link on which client 1 is restarted in round 2 with another vocabulary."""

        def before(self, kind, n, packet):
            trained = [asked.values.get("operation") for _, who, asked, _ in self.seen if who == 1].count("train")
            if n == 1 and trained == 1 and packet.values.get("operation") == "train" and not self.done:
                written(tmp_path / "clients/1/data.npz", "tokens", 1, 40, OTHER)
                self.done = True
                self.stop(1)
                self.start(1)

        done = False

    files = texts(tmp_path, "kt_pfl", ("fasttext",) * 3, rounds=2)
    history = run(tmp_path, Reordered(files), deadline=0.05).history
    assert [record.cohort for record in history] == [[0, 1, 2], [0, 2]]
    assert "Client 1 at node 103 has changed since the run started (data.vocabulary.fingerprint=" in caplog.text


@pytest.mark.parametrize(
    ("public", "sentence"),
    [
        ({"kind": "features"}, "Client 0 at node 100 has tokens, but the public set has features"),
        ({"vocabulary": None}, "has tokens without a vocabulary"),
    ],
)
def test_a_public_set_that_others_cannot_compare_is_refused(tmp_path, public, sentence):
    files = texts(tmp_path, "kt_pfl", ("fasttext",) * 2)
    if "kind" in public:
        np.savez(tmp_path / "public.npz", features=np.zeros((40, 12), np.float32))
    else:
        written(tmp_path / "public.npz", "tokens", 9, 40, **public)
    with pytest.raises(InputError, match=sentence):
        run(tmp_path, NoLink(files), patience=0.01)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"source": "text:mine.csv"}, "vocabulary is made from these texts.*same tokenizer.json"),
        ({"source": "text:mine.csv", "text": {"tokenizer": "none.json"}}, "there is no file"),
        ({"image": {"channels": 1, "size": 8}}, "image is set, but npz:.* has tokens. Remove image"),
        ({"architecture": "transformers:mine"}, "cannot use code or folders of their own"),
    ],
)
def test_a_client_s_file_whose_texts_cannot_be_compared_is_refused_before_it_joins(tmp_path, changes, sentence):
    file, *_ = texts(tmp_path, "kt_pfl", ("fasttext",) * 2)
    (tmp_path / "mine.csv").write_text("text,label\n" + "it broke,a\nit runs,b\n" * 20)
    Member(file).check()
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))
    with pytest.raises(InputError, match=sentence):
        Member(file).check()
