"""Checkpoints that are hostile or damaged."""

import hashlib
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hostile_files import Code, Make

import ktpfl_pipeline
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.rounds import checkpoint

SETTINGS: dict[str, Any] = {"method": "kt_pfl", "seed": 0, "training.learning_rate": 0.01}
VERSION = ktpfl_pipeline.__version__


def stamped(file: Path, **stamp: Any) -> None:
    """Append a checkpoint's end with a valid checksum, as an attacker can do."""
    made = {"version": VERSION, "settings": digest(SETTINGS), **stamp}
    body = file.read_bytes() + checkpoint.MARK + json.dumps(made).encode() + b" "
    file.write_bytes(body + hashlib.sha256(body).hexdigest().encode())


def kept(file: Path, **changes: Any) -> None:
    content = {"settings": SETTINGS, "state": {"weights": torch.arange(6.0)}, "history": [], **changes}
    checkpoint.save(file, content)


def of_torch(content: Any) -> Make:
    return lambda file: [torch.save(content, file), stamped(file)]


def spoilt_checkpoint(spoil: Callable[[bytes], bytes]) -> Make:
    return lambda file: [kept(file), file.write_bytes(spoil(file.read_bytes()))]


def flipped(content: bytes, part: bytes) -> bytes:
    at = content.index(part)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def packed(file: Path) -> None:
    """Write 16 MiB of zeros, compressed to a few kilobytes. torch does not compress its files."""
    torch.save({"settings": SETTINGS, "state": torch.zeros(1)}, file)
    with zipfile.ZipFile(file) as given:
        members = {name: given.read(name) for name in given.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, bytes(2**24) if name.endswith("/data/0") else member)
    stamped(file)


CHECKPOINTS: dict[str, tuple[Make, str]] = {
    "an empty file": (lambda file: file.touch(), "its end, with the checksum, is missing"),
    "the first half": (spoilt_checkpoint(lambda c: c[: len(c) // 2]), "its end, with the checksum, is missing"),
    "all but the last byte": (spoilt_checkpoint(lambda c: c[:-1]), "its checksum does not match its content"),
    "a flipped bit in a weight": (
        spoilt_checkpoint(lambda c: flipped(c, torch.tensor(5.0).numpy().tobytes())),
        "its checksum does not match its content",
    ),
    "a flipped bit in the version": (
        spoilt_checkpoint(lambda c: flipped(c, VERSION.encode())),
        "its checksum does not match its content",
    ),
    "a flipped bit in the checksum": (
        spoilt_checkpoint(lambda c: flipped(c, c[-9:])),
        "its checksum does not match its content",
    ),
    "two checkpoints in one file": (
        spoilt_checkpoint(lambda c: c + c),
        "its checksum does not match its content",
    ),
    "one of torch alone": (lambda file: torch.save({"settings": SETTINGS}, file), "its end, with the checksum"),
    "a text": (lambda file: [file.write_text("hello"), stamped(file)], "cannot be read"),
    "a pickle with code": (lambda file: [file.write_bytes(pickle.dumps(Code(), 2)), stamped(file)], "cannot be read"),
    "a file of torch with code": (of_torch(Code()), "could run code when read"),
    "code among the weights": (of_torch({"settings": SETTINGS, "state": Code()}), "could run code when read"),
    "a list": (of_torch([1, 2]), "contains no settings"),
    "no settings": (of_torch({"state": {}}), "contains no settings"),
    "packed zeros": (packed, "it is compressed, unlike the files that torch writes"),
    "another version's": (
        lambda file: (
            [kept(file), file.write_bytes(file.read_bytes().rpartition(checkpoint.MARK)[0])]
            and stamped(file, version="99.1")
        ),
        f"made with version 99.1 of ktpfl_pipeline, and this is {VERSION}",
    ),
    "other settings": (lambda file: kept(file, settings={**SETTINGS, "seed": 1}), "(seed=1, now 0); put them back"),
    "a folder": (lambda file: file.mkdir(), "it is not a file"),
    "a pipe": (os.mkfifo, "it is not a file"),
    "a broken link": (lambda file: file.symlink_to("gone"), "it is not a file"),
}
"""Cases by description: the function that makes the file, and words of the error message."""
