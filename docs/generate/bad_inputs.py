"""Writes docs/project/bad_inputs.md, the error message for each bad input: ``python docs/generate/bad_inputs.py``."""

import contextlib
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from click import ClickException

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

import bad_configuration
import bad_data
import bad_settings
from bad_texts import TEXTS
from experiment import changed
from hostile_checkpoints import CHECKPOINTS, SETTINGS
from hostile_federations import FEDERATIONS
from hostile_files import FILES
from hostile_pickles import PICKLES, shards

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core import settings as core_settings
from ktpfl_pipeline.core.errors import InputError, written
from ktpfl_pipeline.core.rounds import checkpoint
from ktpfl_pipeline.data.converters import pfllib
from ktpfl_pipeline.data.sources import Reading, load
from ktpfl_pipeline.hooks import ProjectHooks

DOCUMENT = Path(__file__).parents[1] / "project" / "bad_inputs.md"
INTRODUCTION = """---
orphan: true
---

# Bad inputs

The error message for each of {number:,} invalid inputs: settings, configuration files, data, malicious files and
checkpoints. Each error is one line, comes before training starts, and leaves no half-written file.
[Limits](../reference/limits.md) states what is allowed.

The tests try each of these inputs. `python docs/generate/bad_inputs.py` writes this page from their tables, and
`make docs-check` fails if the page is out of date.
"""
LENGTH = 400  # characters at most of an input or a message
RAW = Path("data/01_raw")

Cases = dict[str, str]


def groups() -> dict[str, Cases]:
    """Return {group: {input: message}}."""
    return {
        "Settings": dict(settings()),
        "Settings that do not go with the images": dict(data_boxes()),
        "Configuration files": dict(configurations()),
        "Images and clients' data": dict(files()),
        "Texts": dict(texts()),
        "Pickles of PFLlib's clients": dict(pickles()),
        "Checkpoints": dict(checkpoints()),
    }


def settings() -> Iterator[tuple[str, str]]:
    """Yield settings that are wrong whatever the images are, with their messages."""
    tables = (
        bad_settings.MISSPELT,
        bad_settings.OUT_OF_RANGE,
        bad_settings.UNKNOWN,
        bad_settings.IMPOSSIBLE_WITH_PRIVACY,
    )
    for path, value, *_ in (case for table in tables for case in table):
        wrong = changed(path, value)
        yield f"{path}: {written(value)}", message(lambda wrong=wrong: parsing.parse("mine", wrong))


def data_boxes() -> Iterator[tuple[str, str]]:
    """Yield settings and image files that do not go together."""
    for what, (prepare, changes, _) in bad_data.CASES.items():
        with project():
            if prepare:
                prepare(RAW)
            yield what, message(lambda changes=changes: bad_data.data_box(RAW, changes))


def configurations() -> Iterator[tuple[str, str]]:
    """Yield files under conf/ that cannot be read."""
    for what, (text, _) in bad_configuration.YAML.items():
        with project():
            read = bad_configuration.context(Path(), parameters=text)
            yield what, message(lambda read=read: ProjectHooks().after_context_created(read))


def files() -> Iterator[tuple[str, str]]:
    """Yield malicious files."""
    for what, (source, make, _) in {**FILES, **FEDERATIONS}.items():
        with project():
            make(RAW)
            yield what, message(lambda source=source: load(source, RAW))


def texts() -> Iterator[tuple[str, str]]:
    """Yield texts and tokens that cannot be used."""
    for what, (write, how, _) in TEXTS.items():
        if how.tokenizer == "tokenizer.json":
            continue  # without the package, which is optional, the message is another one
        with project():
            source = write(RAW)
            yield what, message(lambda source=source, how=how: load(source, RAW, reading=Reading(text=how)))


def pickles() -> Iterator[tuple[str, str]]:
    """Yield pickles that would run code, instead of PFLlib's shards."""
    for what, (content, _) in PICKLES.items():
        with project():
            shards(RAW, content)
            yield what, message(lambda: pfllib.convert(RAW))


def checkpoints() -> Iterator[tuple[str, str]]:
    """Yield checkpoints that are not as they were written."""
    for what, (make, _) in CHECKPOINTS.items():
        with project():
            file = Path("checkpoint.pt")
            make(file)
            yield (
                what,
                message(lambda file=file: checkpoint.load(file, SETTINGS, torch.device("cpu"))),
            )


def message(use: Callable[[], Any]) -> str:
    """Return the error message that using a bad input ends with."""
    try:
        use()
    except (InputError, ClickException) as error:
        return str(error)
    raise AssertionError("a bad input was accepted")


@contextlib.contextmanager
def project() -> Iterator[None]:
    """Work in an empty project without a network."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        RAW.mkdir(parents=True)
        with patch.object(socket, "getaddrinfo", side_effect=OSError("no network")):
            yield


def document() -> str:
    """Return the page, without addresses in memory and names of temporary folders."""
    no_gpus = patch.object(torch.cuda, "device_count", return_value=0)
    with no_gpus, patch.object(core_settings, "has_bfloat16", return_value=True):
        made = groups()
    lines = [INTRODUCTION.format(number=sum(map(len, made.values())))]
    for group, cases in made.items():
        lines += [f"## {group}\n", "```text"]
        lines += [f"{shown(what)}\n    {shown(said)}" for what, said in cases.items()]
        lines += ["```\n"]
    lines = [re.sub(r" at 0x[0-9a-f]+", "", line) for line in lines]
    return re.sub(rf"/(private/)?{re.escape(tempfile.gettempdir().strip('/'))}/tmp\w+", "/project", "\n".join(lines))


def shown(text: str) -> str:
    """Return a text on one line of `LENGTH` characters at most."""
    line = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return line if len(line) <= LENGTH else f"{line[: LENGTH // 2]} ... {line[-LENGTH // 2 :]}"


def without_reasons(page: str) -> str:
    """Return a page without the reasons that libraries give, which differ by version."""
    return re.sub(
        r"(whole \.npz file|cannot be read|pixels allowed|could not be downloaded into \S+) \(.*\)", r"\1", page
    )


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
