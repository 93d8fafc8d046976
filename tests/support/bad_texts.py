"""Texts and tokens that cannot be used, each with parts of the error message."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ktpfl_pipeline.data.settings import Text

TOKENS = np.arange(60).reshape(12, 5) % 9
LABELS = np.arange(12) % 3
CLIENTS = np.repeat(["ann", "bo"], 6)
WORDS = np.array(list("abcdefghi"))
Write = Callable[[Path], str]


def table(content: str | bytes) -> Write:
    """Write a table of texts."""

    def write(raw: Path) -> str:
        data = content if isinstance(content, bytes) else content.encode()
        (raw / "mine.csv").write_bytes(data)
        return "text:mine.csv"

    return write


def npz(**arrays: Any) -> Write:
    """Write an npz file of tokens; None leaves an array out."""

    def write(raw: Path) -> str:
        given = {"tokens": TOKENS, "labels": LABELS, **arrays}
        np.savez(raw / "mine.npz", **{name: each for name, each in given.items() if each is not None})
        return "npz:mine.npz"

    return write


def ragged() -> Any:
    rows = np.empty(12, dtype=object)
    rows[:] = [list(range(1 + row % 3)) for row in range(12)]
    return rows


def folders(**second: Any) -> Write:
    """Write two clients' folders, with different arrays in the second folder."""

    def write(raw: Path) -> str:
        for client, own in {"ann": {}, "bo": second}.items():
            (raw / "all" / client).mkdir(parents=True)
            arrays = {"tokens": TOKENS, "labels": LABELS, "vocabulary": WORDS, **own}
            np.savez(raw / "all" / client / "data.npz", **{k: each for k, each in arrays.items() if each is not None})
        return "clients:all"

    return write


def leaf(**users: tuple[list[Any], list[Any]]) -> Write:
    """Write a LEAF file with the x and y of each user."""

    def write(raw: Path) -> str:
        data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
        (raw / "mine.json").write_text(json.dumps({"users": [*data], "user_data": data}))
        return "leaf:mine.json"

    return write


def tokenizer(content: str) -> Write:
    """Write a table, and a file that the settings name as its tokenizer."""

    def write(raw: Path) -> str:
        (raw / "tokenizer.json").write_text(content)
        return table("text,label\na b,x\nc,y\n")(raw)

    return write


# By description: the function that writes the files, the settings of the tokens, and parts of the message.
TEXTS: dict[str, tuple[Write, Text, list[str]]] = {
    # Tables.
    "no column text": (table("words,label\na,x\n"), Text(), ["no column 'text'", "name the columns text, label"]),
    "no column label": (table("text,class\na,x\n"), Text(), ["no column 'label'"]),
    "neither column": (table("a,b\n1,2\n"), Text(), ["no column 'text' and no column 'label'"]),
    "an empty file": (table(""), Text(), ["is not a table in UTF-8"]),
    "only column names": (table("text,label\n"), Text(), ["has column names and no rows: add a row"]),
    "an empty text": (table("text,label\na,x\n,y\n"), Text(), ["has no text in row 3", "fill it in"]),
    "a text of spaces": (table('text,label\na,x\n"   ",y\n'), Text(), ["has no text in row 3"]),
    "a missing label": (table("text,label\na,x\nb,\n"), Text(), ["has no label in row 3"]),
    "a missing client": (table("text,label,client\na,x,ann\nb,y,\n"), Text(), ["has no client in row 3"]),
    "a missing split": (table("text,label,split\na,x,train\nb,y,\n"), Text(), ["has no split in row 3"]),
    "an unknown split": (
        table("text,label,split\na,x,dev2\n"),
        Text(),
        ["the split 'dev2' in row 2", "train, val or"],
    ),
    "an unknown split after public texts": (
        table("text,label,split,public\na,,,yes\na,,,yes\na,x,dev2,no\n"),
        Text(),
        ["the split 'dev2' in row 4"],
    ),
    "an empty public": (table("text,label,public\na,x,\n"), Text(), ["the public '' in row 2", "true or false"]),
    "an unknown public": (table("text,label,public\na,x,maybe\n"), Text(), ["the public 'maybe'", "true or false"]),
    "only public texts": (table("text,label,public\na,x,yes\n"), Text(), ["has no private text"]),
    "too few cells": (table("text,label\na,x\nb\n"), Text(), ["row 3 has 1 cell and the first row has 2"]),
    "a comma without quotes": (table("text,label\na,x\nb,c,y\n"), Text(), ["row 3 has 3 cells"]),
    "a quote that is never closed": (table('text,label\n"a,x\nb,y\n'), Text(), ["is not a table in UTF-8"]),
    "text after a closing quote": (table('text,label\n"a"b,x\n'), Text(), ["is not a table in UTF-8"]),
    "two columns of one name": (table("text,text,label\na,b,x\n"), Text(), ["two columns have one name"]),
    "Latin-1": (table("text,label\ncafé,x\nb,y\n".encode("latin-1")), Text(), ["is not a table in UTF-8"]),
    "UTF-16": (table("text,label\na,x\n".encode("utf-16")), Text(), ["is not a table in UTF-8"]),
    "UTF-8 and Latin-1 mixed": (
        table("text,label\ncafé,x\n".encode() + "thé,y\n".encode("latin-1")),
        Text(),
        ["is not a table in UTF-8", "save it as CSV in UTF-8"],
    ),
    "a client's name with a newline": (
        table('text,label,client\na,x,"an\nn"\n'),
        Text(),
        ["has a client named", "printable characters"],
    ),
    "a label as long as a text": (table(f"text,label\na,{'x' * 200}\n"), Text(), ["has a class named"]),
    "a text longer than any": (table(f"text,label\n{'a ' * 2000},x\n"), Text(), ["a text of 2,000", "text.length"]),
    "a text of one huge cell": (table(f"text,label\n{'a' * 200_000},x\n"), Text(), ["is not a table in UTF-8"]),
    "a folder": (lambda raw: "text:.", Text(), ["is a folder and not a file"]),
    "no file": (lambda raw: "text:gone.csv", Text(), ["there is no file"]),
    "no path": (lambda raw: "text", Text(), ["source 'text' needs a path"]),
    "a path that leaves the folder": (lambda raw: "text:../mine.csv", Text(), ["leads out of"]),
    # Tokenizers.
    "a tokenizer that is not there": (table("text,label\na,x\n"), Text("gone.json"), ["there is no file", "words"]),
    "a tokenizer's name misspelt": (table("text,label\na,x\n"), Text("word"), ["text.tokenizer is 'word'"]),
    "a tokenizer file that is no JSON": (tokenizer("{"), Text("tokenizer.json"), ["is not a tokenizer file"]),
    "a tokenizer file of other JSON": (tokenizer("{}"), Text("tokenizer.json"), ["is not a tokenizer file"]),
    # Tokens in npz files.
    "tokens in floats": (npz(tokens=TOKENS / 2), Text(), ["is float64 and must be ids in integers"]),
    "tokens as text": (npz(tokens=TOKENS.astype(str)), Text(), ["texts are read from a CSV table"]),
    "ragged tokens": (npz(tokens=ragged()), Text(), ["holds Python objects", "all samples of one size"]),
    "tokens of one dimension": (npz(tokens=TOKENS[:, 0]), Text(), ["must have N x L", "fill shorter ones"]),
    "tokens of three dimensions": (npz(tokens=TOKENS[..., None]), Text(), ["must have N x L"]),
    "no tokens": (npz(tokens=TOKENS[:0], labels=LABELS[:0]), Text(), ["is empty (shape (0, 5))"]),
    "a negative id": (npz(tokens=TOKENS - 1), Text(), ["has the id -1 in row 0, place 0"]),
    "an id outside the vocabulary": (npz(vocabulary=WORDS[:8]), Text(), ["has the id 8", "the ids 0 to 7"]),
    "an id in the millions": (npz(tokens=TOKENS + 10**7), Text(), ["has the id 10,000,008", "0 to 1,048,575"]),
    "an id beyond int64": (npz(tokens=TOKENS.astype("uint64") + 2**63), Text(), ["number the tokens from 0"]),
    "a vocabulary of numbers": (npz(vocabulary=np.arange(9)), Text(), ["must be text of shape (V,)"]),
    "a vocabulary of one token": (npz(tokens=TOKENS * 0, vocabulary=WORDS[:1]), Text(), ["has 1 token,"]),
    "a token twice": (npz(vocabulary=np.array(list("abcdefghh"))), Text(), ["has 'h' twice in 'vocabulary'"]),
    "a padding id outside": (npz(vocabulary=WORDS, padding=9), Text(), ["the padding id 9", "0 to 8"]),
    "a padding id in floats": (npz(padding=0.5), Text(), ["must be one integer"]),
    "two padding ids": (npz(padding=np.array([0, 1])), Text(), ["must be one integer"]),
    "a vocabulary of images": (
        npz(tokens=None, images=np.zeros((12, 4, 4), "uint8"), vocabulary=WORDS),
        Text(),
        ["belongs to tokens, but it has images"],
    ),
    "tokens and images": (npz(images=np.zeros((12, 4, 4), "uint8")), Text(), ["save only one of them"]),
    "fewer labels than texts": (npz(labels=LABELS[:9]), Text(), ["has 12 tokens and 9 labels"]),
    "tokens without labels": (npz(labels=None), Text(), ["has no array 'labels'"]),
    "labels beyond the named classes": (npz(classes=np.array(["x", "y"])), Text(), ["has 2 class names"]),
    # Clients' folders.
    "clients with other vocabularies": (folders(vocabulary=WORDS[::-1]), Text(), ["has another vocabulary"]),
    "one client without a vocabulary": (folders(vocabulary=None), Text(), ["has another vocabulary"]),
    "clients with other lengths": (folders(tokens=TOKENS[:, :4]), Text(), ["has tokens of shape (4,)"]),
    # LEAF.
    "an empty text of LEAF": (leaf(ann=(["ab", ""], ["c", "d"])), Text(), ["user 'ann'", "as text 2"]),
    "texts and numbers in LEAF": (leaf(ann=(["ab", 3], ["c", "d"])), Text(), ["has '3' as text 2"]),
    "texts of one user only": (leaf(ann=(["ab"], [0]), bo=([[1.0]], [0])), Text(), ["has texts for some users"]),
    "characters and numbers as labels": (leaf(ann=(["ab"], ["c"]), bo=(["ab"], [0])), Text(), ["not for user 'bo'"]),
    "a word as a label in LEAF": (leaf(ann=(["ab"], ["good"])), Text(), ["the label 'good'", "the next character"]),
    "a missing label in LEAF": (leaf(ann=(["ab"], [None])), Text(), ["the label 'None'"]),
}
