"""Files with clients' own data that are hostile, or that do not fit together."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from hostile_files import HUGE, IMAGES, LABELS, NPZ, Code, Make, claim, npy, npz, outside, saved, sparse
from PIL import Image

ANNE = {"anne": ([[0.5, 1], [0, -2]], [3, 0])}
BILL = {"bill": ([[9, 9]], [1])}
LEAF, OURS = "leaf:mine.json", "clients:mine"


def leaf(path: Path, users: dict[str, tuple[Any, Any]], /, **others: Any) -> None:
    """Write a LEAF file, in which `others` replace lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    content = {"users": [*users], "num_samples": [len(y) for _, y in users.values()], "user_data": data, **others}
    path.write_text(json.dumps(content))


def written(users: dict[str, tuple[Any, Any]], /, **others: Any) -> Make:
    return lambda raw: leaf(raw / "mine.json", users, **others)


def anne(x: Any, y: Any) -> Make:
    """Return a function that writes a LEAF file with one user."""
    return written({"anne": (x, y)})


def text(content: str | bytes) -> Make:
    return lambda raw: (raw / "mine.json").write_bytes(content if isinstance(content, bytes) else content.encode())


def client(raw: Path, name: str, file: str = "data.npz", **arrays: Any) -> Path:
    """Write arrays of one client."""
    place = raw / "mine" / name
    place.mkdir(parents=True, exist_ok=True)
    np.savez(place / file, **{"images": IMAGES, "labels": LABELS, **arrays})
    return place


def photograph(raw: Path, name: str) -> Path:
    """Write an image below the clients' folder."""
    file = raw / "mine" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(IMAGES[0]).save(file)
    return file


def owners(**arrays: Any) -> Make:
    return saved(**{"clients": LABELS, **arrays})


FEDERATIONS: dict[str, tuple[str, Make, str]] = {
    # Owners and features in an archive of arrays.
    "npz: owners that are pickled objects": (
        NPZ,
        lambda raw: npz(
            raw / "mine.npz", images=IMAGES, labels=LABELS, clients=npy(np.array([Code()] * 6), allow_pickle=True)
        ),
        "'clients' in",
    ),
    "npz: an owner's name of 4 TiB": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", images=IMAGES, labels=LABELS, clients=claim("(6,)", f"'<U{HUGE}'")),
        "mine.npz",
    ),
    "npz: owners without a name": (NPZ, owners(clients=np.array([""] * 6)), "has a client named ''"),
    "npz: owners of 101 letters": (
        NPZ,
        owners(clients=np.array(["a" * 101] * 6)),
        "names are 1 to 100 printable characters",
    ),
    "npz: owners with escape sequences": (NPZ, owners(clients=np.array(["\x1b[2J"] * 6)), "printable characters"),
    "npz: owners with right-to-left signs": (NPZ, owners(clients=np.array(["a\u202eb"] * 6)), "printable characters"),
    "npz: owners in a table": (NPZ, owners(clients=np.zeros((6, 2), int)), "must be integers or text of shape (N,)"),
    "npz: fewer owners than samples": (NPZ, owners(clients=LABELS[:5]), "has 6 images and 5 clients"),
    "npz: what is tested on, as numbers to 7": (NPZ, owners(test=LABELS + 6), "has values other than 0 and 1"),
    "npz: images and features": (NPZ, saved(features=IMAGES / 1), "save only one of them"),
    "npz: features of 16 GiB": (
        NPZ,
        lambda raw: npz(raw / "mine.npz", features=claim("(6, 1073741824)", "'<f4'"), labels=LABELS),
        "more than the 16 GiB allowed",
    ),
    "npz: features of 128 bits": (
        NPZ,
        lambda raw: np.savez(raw / "mine.npz", features=np.zeros((6, 2), np.longdouble), labels=LABELS),
        "must be float16, float32 or float64",
    ),
    "npz: features that are not finite": (
        NPZ,
        lambda raw: np.savez(raw / "mine.npz", features=np.diag([1, 1, -np.inf, 1, 1, 1]), labels=LABELS),
        "has -inf in row 2",
    ),
    # LEAF's JSON.
    "leaf: no file": (LEAF, lambda raw: None, "there is no folder"),
    "leaf: a pipe": (LEAF, lambda raw: os.mkfifo(raw / "mine.json"), "is neither file nor folder"),
    "leaf: a path out of the data folder": ("leaf:..", lambda raw: None, "leads out of"),
    "leaf: an empty file": (LEAF, text(""), "mine.json cannot be read"),
    "leaf: a pickle": (LEAF, text(b"\x80\x04cposix\nsystem\n."), "mine.json cannot be read"),
    "leaf: half a file": (LEAF, text('{"users": ["anne"], "user_data": {"anne": {"x": [[1, '), "cannot be read"),
    "leaf: 100,000 open brackets": (LEAF, text("[" * 100_000), "mine.json cannot be read"),
    "leaf: a number of 100,000 digits": (LEAF, text("1" * 100_000), "mine.json cannot be read"),
    "leaf: a file of 1 TiB": (LEAF, lambda raw: sparse(raw / "mine.json", HUGE), "more than the 16 GiB allowed"),
    "leaf: a list": (LEAF, text("[1, 2]"), "is not a LEAF file"),
    "leaf: no users": (LEAF, written({}), "is not a LEAF file"),
    "leaf: users that are lists": (LEAF, written(ANNE, users=[["anne"]]), "is not a LEAF file"),
    "leaf: a user without data": (
        LEAF,
        written(ANNE, users=["anne", "bill"]),
        "does not name the same users in 'users'",
    ),
    "leaf: a user twice": (LEAF, written(ANNE, users=["anne", "anne"]), "names a user twice"),
    "leaf: a user with escape sequences": (LEAF, written({"\x1b[2J": ([[1]], [0])}), "printable characters"),
    "leaf: a user that is half a sign": (LEAF, text('{"users": ["\\ud800"], "user_data": {}}'), "printable characters"),
    "leaf: other numbers of samples": (LEAF, written(ANNE, num_samples=[3]), "'num_samples' that differ"),
    "leaf: a user without samples": (LEAF, anne([], []), "has no samples"),
    "leaf: a list in the place of samples": (LEAF, written(ANNE, user_data={"anne": [1]}), "has no samples"),
    "leaf: fewer labels than inputs": (LEAF, anne([[1], [2]], [0]), "has 2 inputs and 1 label:"),
    "leaf: inputs of two lengths": (LEAF, anne([[1, 2], [3]], [0, 1]), "all of one length"),
    "leaf: users of two lengths": (
        LEAF,
        written({**BILL, "anne": ([[1]], [0])}),
        "features of shape (2,) and user",
    ),
    "leaf: a text and a number": (LEAF, anne(["once upon a time", 3], [0, 1]), "has '3' as text 2"),
    "leaf: one text of a megabyte beside 10,000": (
        LEAF,
        anne([["a " * 10**6], *[["b"]] * 10_000], [0] * 10_001),
        "tokens need text.length",
    ),
    "leaf: numbers without lists": (LEAF, anne([1, 2], [0, 1]), "an 'x' of shape (2,)"),
    "leaf: empty lists": (LEAF, anne([[]], [0]), "an 'x' of shape (1, 0)"),
    "leaf: lists in lists in lists in lists": (LEAF, anne([[[[[1]]]]], [0]), "an 'x' of shape (1, 1, 1, 1, 1)"),
    "leaf: a dict among numbers": (LEAF, anne([[{}]], [0]), "neither a list of numbers"),
    "leaf: not a number": (LEAF, anne([[1], [float("nan")]], [0, 1]), "has nan in row 1"),
    "leaf: null": (LEAF, anne([[1], [None]], [0, 1]), "has nan in row 1"),
    "leaf: 1e60": (LEAF, anne([[1e60]], [0]), "has inf in row 0"),
    "leaf: a number of 400 digits": (LEAF, anne([[10**400]], [0]), "neither a list of numbers"),
    "leaf: a label of -1": (LEAF, anne([[1]], [-1]), "the label -1 in row 0"),
    "leaf: a label of 2^64": (LEAF, anne([[1]], [2**64]), "class numbers from 0 to 9999"),
    "leaf: a label of 1.5": (LEAF, anne([[1]], [1.5]), "the label 1.5 in row 0"),
    "leaf: a label that is text": (LEAF, anne([[1]], ["a"]), "the label 'a'"),
    "leaf: a label that is true": (LEAF, anne([[1]], [True]), "the label 'True'"),
    "leaf: a folder without files": ("leaf:mine", lambda raw: (raw / "mine").mkdir(), "has no .json files"),
    "leaf: a user in two files": (
        "leaf:mine",
        lambda raw: [leaf(raw / f"mine/{name}.json", ANNE) for name in "ab"],
        "b.json has user 'anne', but another file has",
    ),
    "leaf: training files alone": ("leaf:mine", lambda raw: leaf(raw / "mine/train/a.json", ANNE), "only one of the"),
    "leaf: users who are only trained on": (
        "leaf:mine",
        lambda raw: [leaf(raw / "mine/train/a.json", ANNE), leaf(raw / "mine/test/a.json", BILL)],
        "has user 'anne' in only one of train and test",
    ),
    "leaf: a link out of its folder": (
        "leaf:mine",
        lambda raw: [leaf(raw / "mine/a.json", ANNE), (raw / "mine/b.json").symlink_to("/dev/zero")],
        "is a symbolic link out of its folder",
    ),
    # A folder per client.
    "clients: a file": (OURS, lambda raw: (raw / "mine").write_text(""), "is a file and not a folder"),
    "clients: an empty folder": (OURS, lambda raw: (raw / "mine").mkdir(), "mine has no subfolders"),
    "clients: public inputs alone": (OURS, lambda raw: photograph(raw, "public/1.png"), "mine has no subfolders"),
    "clients: images without classes": (OURS, lambda raw: photograph(raw, "anne/1.png"), "anne has no subfolders"),
    "clients: a class without images": (
        OURS,
        lambda raw: [photograph(raw, "anne/cat/1.png"), (raw / "mine/anne/dog").mkdir()],
        "dog has no images",
    ),
    "clients: arrays and images": (
        OURS,
        lambda raw: [client(raw, "anne"), photograph(raw, "bill/cat/1.png")],
        "bill has no arrays and",
    ),
    "clients: data and a test": (
        OURS,
        lambda raw: [client(raw, "anne"), client(raw, "anne", "test.npz")],
        "has data.npz and test.npz",
    ),
    "clients: a test alone": (OURS, lambda raw: client(raw, "anne", "test.npz"), "has test.npz: a client has"),
    "clients: arrays of two shapes": (
        OURS,
        lambda raw: [client(raw, "anne"), client(raw, "bill", images=IMAGES[:, :4])],
        "bill/data.npz has images of shape (1, 4, 8)",
    ),
    "clients: images and features": (
        OURS,
        lambda raw: [
            client(raw, "anne"),
            (raw / "mine/bill").mkdir(),
            np.savez(raw / "mine/bill/data.npz", features=np.zeros((6, 8)), labels=LABELS),
        ],
        "has features of shape (8,)",
    ),
    "clients: owners in an owner's file": (
        OURS,
        lambda raw: client(raw, "anne", clients=LABELS),
        "leave the array out",
    ),
    "clients: pickled objects": (
        OURS,
        lambda raw: client(raw, "anne", labels=np.array([Code()] * 6)),
        "holds Python objects, which could run code when read",
    ),
    "clients: a link out of the folder": (
        OURS,
        lambda raw: [client(raw, "anne"), (raw / "mine/bill").symlink_to(outside(raw).parent)],
        "is a symbolic link out of its folder",
    ),
    "clients: arrays that are a link out of it": (
        OURS,
        lambda raw: [
            client(raw, "anne"),
            (raw / "mine/bill").mkdir(),
            (raw / "mine/bill/data.npz").symlink_to("/dev/zero"),
        ],
        "is a symbolic link out of its folder",
    ),
    "clients: arrays that are a pipe": (
        OURS,
        lambda raw: [client(raw, "anne"), (raw / "mine/bill").mkdir(), os.mkfifo(raw / "mine/bill/data.npz")],
        "is not a file that can be read",
    ),
    "clients: a name with escape sequences": (
        OURS,
        lambda raw: client(raw, "\x1b[2J"),
        "printable characters",
    ),
}
"""Cases in the form of `hostile_files.FILES`."""
