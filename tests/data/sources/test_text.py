"""Texts as tokens: tables, npz files, clients' folders and LEAF's strings, and what cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bad_texts import CLIENTS, LABELS, TEXTS, TOKENS, WORDS, leaf, npz, table

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.settings import Text
from ktpfl_pipeline.data.sources import Reading, load, load_public, tokens

TICKETS = (
    "\ufefftext,label,client,public\n"
    '"The printer, again.",hardware,north,false\n"It said ""no""\nand stopped",software,south,no\n'
    "No access!,software,north,0\nis the printer free,,,true\nwhat is this,,,1\n"
)


def words(samples: Any, row: int) -> list[str]:
    """Return a row of tokens in words."""
    return [samples.vocabulary.words[number] for number in samples.inputs[row].tolist()]


def reading(**texts: Any) -> Reading:
    return Reading(text=Text(**texts))


def test_a_table_with_quotes_newlines_and_a_mark_of_byte_order(tmp_path: Path) -> None:
    samples: Any = load(table(TICKETS)(tmp_path), tmp_path)
    assert isinstance(samples, OwnedDataset)
    assert samples.kind is kinds.TOKENS
    assert samples.class_names == ("hardware", "software")
    assert samples.labels.tolist() == [0, 1, 1]
    assert samples.names == ("north", "south")
    assert samples.owners.tolist() == [0, 1, 0]
    assert words(samples, 0) == ["the", "printer", ",", "again", ".", "[PAD]", "[PAD]"]
    assert words(samples, 1) == ["it", "said", '"', "no", '"', "and", "stopped"]


def test_public_texts_use_the_vocabulary_and_the_length_of_the_private_ones(tmp_path: Path) -> None:
    source = table(TICKETS)(tmp_path)
    private: Any = load(source, tmp_path)
    public = load_public("included", source, tmp_path)
    assert public.shape == (2, 7)
    numbers = {word: number for number, word in enumerate(private.vocabulary.words)}
    assert public[0].tolist() == [tokens.UNKNOWN, numbers["the"], numbers["printer"], tokens.UNKNOWN, 0, 0, 0]


def test_two_columns_that_differ_in_capitals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("Text,text,label\nold,new,0\nolder,newer,1\n")
    with pytest.raises(InputError, match=r"mine\.csv has two columns 'text' in capital and small letters: rename"):
        load("text:mine.csv", tmp_path)


def test_semicolons_no_clients_and_a_given_split(tmp_path: Path) -> None:
    samples: Any = load(table("Label;Text;split\n2;a b;train\n10;c;test\n")(tmp_path), tmp_path)
    assert type(samples).__name__ == "LabeledDataset"
    assert samples.class_names == ("2", "10")
    assert samples.test.tolist() == [False, True]


def test_long_texts_are_cut_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples: Any = load(table("text,label\na b c d,x\ne,y\n")(tmp_path), tmp_path, reading=reading(length=3))
    assert words(samples, 0) == ["a", "b", "c"]
    assert words(samples, 1) == ["e", "[PAD]", "[PAD]"]
    assert "texts of more than 3 tokens are cut, 1 of 2: raise" in caplog.text


def test_characters_of_any_script(tmp_path: Path) -> None:
    source = table("text,label\nñandú,x\n東京,y\n")(tmp_path)
    samples: Any = load(source, tmp_path, reading=reading(tokenizer="characters"))
    assert words(samples, 1) == ["東", "京", "[PAD]", "[PAD]", "[PAD]"]


def test_a_word_is_the_same_in_both_forms_of_unicode() -> None:
    assert tokens.words("Cafe\u0301, don't") == ["café", ",", "don", "'", "t"]


def test_models_see_no_more_ids_than_asked_for(tmp_path: Path) -> None:
    samples: Any = load(table("text,label\na b c d,x\ne,y\n")(tmp_path), tmp_path, reading=reading(vocabulary=2))
    assert samples.vocabulary.size == 7
    assert samples.shape.vocabulary == 4, "two words, padding and unknown words"


@pytest.mark.parametrize("kind", ["uint8", "int16", "uint32", "int64"])
def test_tokens_of_an_npz_file(kind: str, tmp_path: Path) -> None:
    source = npz(tokens=TOKENS.astype(kind), clients=CLIENTS, vocabulary=WORDS, padding=8, public=TOKENS[:4])(tmp_path)
    samples: Any = load(source, tmp_path)
    assert samples.inputs.dtype == torch.int64
    assert np.array_equal(samples.inputs.numpy(), TOKENS)
    assert samples.names == ("ann", "bo")
    assert (samples.shape, samples.shape.vocabulary, samples.shape.padding) == ((5,), 9, 8)
    assert samples.vocabulary.words == tuple(WORDS)
    assert np.array_equal(load_public("included", source, tmp_path).numpy(), TOKENS[:4])


def test_without_a_vocabulary_ids_go_up_to_the_highest(tmp_path: Path) -> None:
    samples: Any = load(npz()(tmp_path), tmp_path)
    assert (samples.vocabulary.size, samples.vocabulary.padding, samples.vocabulary.words) == (9, None, None)


def test_clients_folders_of_tokens(tmp_path: Path) -> None:
    for client, shift in (("ann", 0), ("bo", 3)):
        (tmp_path / "all" / client).mkdir(parents=True)
        np.savez(tmp_path / "all" / client / "data.npz", tokens=TOKENS + shift, labels=LABELS)
    samples: Any = load("clients:all", tmp_path)
    assert samples.vocabulary.size == 12
    assert samples.owners.bincount().tolist() == [12, 12]


def test_shakespeare_of_leaf(tmp_path: Path) -> None:
    source = leaf(ROMEO=(["my l", "y lo"], ["o", "v"]), NURSE=(["ay,\n"], [" "]))(tmp_path)
    samples: Any = load(source, tmp_path)
    assert samples.names == ("NURSE", "ROMEO")
    assert samples.class_names == (" ", "o", "v")
    assert words(samples, 1) == ["m", "y", " ", "l"]
    assert samples.shape == (4,)


def test_public_texts_are_read_in_characters_as_the_private_ones(tmp_path: Path) -> None:
    private = load(leaf(ROMEO=(["my l", "y lo"], ["o", "v"]))(tmp_path), tmp_path)
    known: Any = private.vocabulary
    (tmp_path / "plays.csv").write_text("text\nlo my\n")
    public = load_public("text:plays.csv", "leaf:mine.json", tmp_path, Reading().of_public(private))
    assert [known.words[each] for each in public[0].tolist()] == ["l", "o", " ", "m"]


@pytest.mark.parametrize("from_file", [False, True])
def test_characters_without_a_space_are_read_as_characters(from_file: bool, tmp_path: Path) -> None:
    private: Any = load(leaf(one=(["ACGT", "TTGA"], ["A", "C"]))(tmp_path), tmp_path)
    if from_file:
        words_ = np.array(private.vocabulary.words)
        np.savez(tmp_path / "own.npz", tokens=private.inputs, labels=private.labels, vocabulary=words_, padding=0)
        private = load("npz:own.npz", tmp_path)
    (tmp_path / "dna.csv").write_text("text\nGATA\n")
    public = load_public("text:dna.csv", "leaf:mine.json", tmp_path, Reading().of_public(private))
    assert [private.vocabulary.words[each] for each in public[0].tolist()] == ["G", "A", "T", "A"]


def test_words_of_one_letter_are_read_as_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    private: Any = load(table("text,label\nA C,x\nG T,y\n")(tmp_path), tmp_path)
    (tmp_path / "dna.csv").write_text("text\nT A\n")
    public = load_public("text:dna.csv", "text:mine.csv", tmp_path, Reading().of_public(private))
    assert [private.vocabulary.words[each] for each in public[0].tolist()] == ["t", "a"]
    assert not caplog.records


def test_public_texts_of_mostly_unknown_words_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    private: Any = load(table("text,label\nmy love,x\nlove my,y\n")(tmp_path), tmp_path)
    (tmp_path / "other.csv").write_text("text\nmein Herz\nmy Herz\n")
    load_public("text:other.csv", "text:mine.csv", tmp_path, Reading().of_public(private))
    assert "other.csv: 3 of 4 tokens (words) are not in the vocabulary of the private texts" in caplog.text


def test_characters_of_leaf_are_words_where_the_private_texts_are(tmp_path: Path) -> None:
    private = load(table("text,label\nmy love,x\nlove my,y\n")(tmp_path), tmp_path)
    known: Any = private.vocabulary
    public = load_public(
        leaf(ROMEO=(["my l"], ["o"]))(tmp_path), "text:mine.csv", tmp_path, Reading().of_public(private)
    )
    assert [known.words[each] for each in public[0].tolist()] == ["my", "[UNK]"]


def test_tweets_of_leaf(tmp_path: Path) -> None:
    row = ["1", "Mon", "NO_QUERY", "ann", "so happy today"]
    samples: Any = load(leaf(ann=([row, row], [1, 0]))(tmp_path), tmp_path)
    assert words(samples, 0) == ["so", "happy", "today"]
    assert samples.labels.tolist() == [1, 0]


def test_a_tokenizer_file(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    how = reading(tokenizer="tokenizer.json")
    samples: Any = load(table("text,label\na b c,x\nb,y\n")(tmp_path), tmp_path, reading=how)
    assert samples.inputs.tolist() == [[2, 3, 0], [3, 1, 1]]
    assert (samples.shape.vocabulary, samples.shape.padding) == (4, 1)


def test_a_tokenizer_file_without_padding_needs_texts_of_one_length(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, "a"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="the vocabulary has no padding token"):
        load(table("text,label\na b,x\nb,y\n")(tmp_path), tmp_path, reading=reading(tokenizer="tokenizer.json"))


@pytest.mark.parametrize(
    ("private", "public", "words"),
    [
        (npz(vocabulary=WORDS), "npz:other.npz", "has another vocabulary"),
        (table("text,label\na,x\n"), "included", "has no public text"),
    ],
)
def test_public_texts_that_cannot_be_used(private: Any, public: str, words: str, tmp_path: Path) -> None:
    source = private(tmp_path)
    np.savez(tmp_path / "other.npz", tokens=TOKENS, vocabulary=WORDS[::-1])
    known = load(source, tmp_path).vocabulary
    with pytest.raises(InputError, match=words):
        load_public(public, source, tmp_path, Reading(known=known))


@pytest.mark.parametrize("what", TEXTS)
def test_unusable_files_are_rejected_in_one_message(what: str, tmp_path: Path) -> None:
    write, texts, parts = TEXTS[what]
    if texts.tokenizer == "tokenizer.json":
        pytest.importorskip("tokenizers")
    with pytest.raises(InputError) as refused:
        load(write(tmp_path), tmp_path, reading=Reading(text=texts))
    message = str(refused.value)
    assert all(part in message for part in parts), message
    assert "\n" not in message.strip()
    assert message.endswith(".")


def test_a_file_of_leaf_is_whole_json(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({"users": ["ann"], "user_data": {"ann": {"x": ["a"], "y": []}}}))
    with pytest.raises(InputError, match="has 1 input and 0 labels"):
        load("leaf:mine.json", tmp_path)


THAI, HINDI = ["ส", "วั", "ส", "ดี"], "\u0928\u092e\u0938\u094d\u0924\u0947"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\u4eca\u5929 2024\u5e74\u3002", ["\u4eca", "\u5929", "2024", "\u5e74", "\u3002"]),  # Chinese
        ("\u304d\u3087\u3046", ["\u304d", "\u3087", "\u3046"]),  # Japanese
        (f"{''.join(THAI)} ok", [*THAI, "ok"]),  # vowels above a letter belong to it
        ("\u179f\u17d2\u179a", ["\u179f\u17d2", "\u179a"]),  # Khmer
        (f"{HINDI} {HINDI}", [HINDI, HINDI]),  # a word with its vowel signs
        (PERSIAN, [PERSIAN]),  # with a character that separates letters of one word
        ("\ub098\ub294 \ud559\uad50", ["\ub098\ub294", "\ud559\uad50"]),  # Korean has spaces
        ("It's na\u0131\u0308ve", ["it", "'", "s", "na\u0131\u0308ve"]),  # a mark without a composed form
    ],
)
def test_words_of_every_script(text: str, parts: list[str]) -> None:
    assert tokens.words(text) == parts
