"""Faults of real clients and their server for a `Stage`: kills, disconnections, full disks, damage, invalid replies."""

import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from client_faults import HIT, Inject, Killed, Stage

from ktpfl_flower.client.member import Member
from ktpfl_flower.wire import Left, Packet, packed
from ktpfl_pipeline import models
from ktpfl_pipeline.core import weights


def killed(when: str, operation: str, nth: int, looks: int = 0) -> Inject:
    """Kill a client's process: before a message arrives, while the client writes its model, or before its reply."""

    def inject(stage: Stage) -> None:
        if when == "during":

            def half(partial: Path) -> None:
                partial.write_bytes(b"half of a model")
                raise Killed

            stage.at("before", operation, nth, lambda: stage.files_hit.update({next_write(stage): half}))
        elif when == "before":
            stage.at("before", operation, nth, lambda: stage.die(looks=looks))
            stage.mend = lambda: [stage.start(n) for n in list(stage.back) if not stage.back.clear()]
        else:
            stage.at("after", operation, nth, lambda answer: stage.die(looks=looks) or silent())

    return inject


def next_write(stage: Stage) -> tuple[str, int]:
    return f"client {HIT}", stage.counts[f"client {HIT}", -1] + 1


def silent() -> Packet:
    return Packet({"silent": "node unavailable"})


def server_killed(when: str, operation: str, nth: int) -> Inject:
    """Kill the server when it sends a message to a client, or when the reply arrives."""

    def end(*given: Any) -> None:
        raise Killed

    return lambda stage: stage.at(when, operation, nth, end)


def server_killed_writing(name: str, nth: int) -> Inject:
    """Kill the server while it writes a file."""

    def end(file: Path) -> None:
        raise Killed

    return lambda stage: stage.files_hit.update({(name, nth): end})


def answers(operation: str, nth: int, change: Callable[[Packet], Packet | list[Packet] | None]) -> Inject:
    """Change a client's reply."""
    return lambda stage: stage.at("after", operation, nth, change)


def value(found: Any) -> Callable[[Packet], Packet]:
    """Return a function that replaces the value of a reply."""
    return lambda answer: Packet({**answer.values, "value": found})


def tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Packet], Packet]:
    """Return a function that changes the tensors of a reply."""
    return lambda answer: replace(answer, tensors={name: change(one) for name, one in answer.tensors.items()})


def beside(**values: Any) -> Callable[[Packet], Packet]:
    """Return a function that replaces plain values of a reply."""
    return lambda answer: replace(answer, values={**answer.values, **values})


def without_model(answer: Packet) -> Packet:
    """Return a reply with a model's number, but without the model."""
    return Packet({**answer.values, "value": {"left": answer.values["value"]["left"]}})


def with_model(answer: Packet) -> Packet:
    """Return a reply with a model's number and the model, which fits the digits."""
    model = weights.state_of(models.build("mlp", (1, 8, 8), 10))
    sent = packed(Left(answer.values["value"]["left"], model))
    return Packet({**answer.values, **sent.values}, sent.tensors)


def filled(number: float) -> Callable[[Packet], Packet]:
    """Return a function that replaces all floats in the tensors of a reply by a number."""
    return tensor(lambda given: torch.full_like(given, number) if given.is_floating_point() else given)


def nan(given: torch.Tensor) -> torch.Tensor:
    """Return NaN in the shape of a tensor."""
    return torch.full_like(given, float("nan")) if given.is_floating_point() else given


def full(partial: Path) -> None:
    """Raise the error of a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


def full_at_client(stage: Stage) -> None:
    """Let the client's disk be full when the client stores a model."""
    stage.at("before", "train", 2, lambda: stage.files_hit.update({next_write(stage): full}))


def full_at_end(stage: Stage) -> None:
    """Let the client's disk be full when the client stores its final model."""

    def refuse(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    saver = patch.object(torch, "save", refuse)
    stage.at("before", "end", 1, saver.start)
    stage.at("after", "end", 1, lambda answer: saver.stop() or answer)


def harmed(pattern: str, harm: Callable[[Path], object]) -> Inject:
    """Damage a client's files while the client is stopped."""

    def inject(stage: Stage) -> None:
        def act() -> None:
            for file in list((stage.folder / "kept" / f"client-{HIT}").glob(pattern)):
                harm(file)
            stage.die()

        stage.at("before", "train", 2, act)

    return inject


def cut(file: Path) -> None:
    """Cut a file to half of its length."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def flip(file: Path) -> None:
    """Change one byte."""
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(bytes(data))


def another(stage: Stage, **changes: Any) -> Path:
    """Write the file of another client, with separate samples and models, and return its path."""
    given = yaml.safe_load(stage.files[HIT].read_text())
    file = stage.folder / "other.yml"
    file.write_text(yaml.safe_dump({**given, "kept": "kept-elsewhere", **changes}))
    return file


def joins(operation: str, nth: int, **changes: Any) -> Inject:
    """Let another client join during a run."""

    def inject(stage: Stage) -> None:
        def act() -> None:
            stage.members.append(Member(another(stage, **changes)))
            stage.nodes[900] = len(stage.members) - 1

        stage.at("before", operation, nth, act)

    return inject


def joins_at_start(stage: Stage) -> None:
    """Give two clients the same number from the start."""
    file = another(stage)
    stage.members[2] = Member(file)
    stage.mend = lambda: stage.members.__setitem__(2, Member(stage.files[2]))


def other_version(nth: int) -> Inject:
    """Start a client with another version of torch."""
    mark = beside(versions={"torch": "1.0"})

    def inject(stage: Stage) -> None:
        stage.at("after", "register", nth, mark)
        if nth > 1:
            killed("before", "train", 2)(stage)

    return inject


def other_classes(stage: Stage) -> None:
    """Let two clients number their classes differently, until the user gives all files the same list."""
    whole = ["benign", "malignant", "normal", *map(str, range(7))]
    for n, file in enumerate(stage.files):
        names = whole if n == HIT else [whole[0], *whole[2:], whole[1]]
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "class_names": names}))
        stage.members[n] = Member(file)

    def agree() -> None:
        for n, file in enumerate(stage.files):
            file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "class_names": whole}))
            stage.members[n] = Member(file)

    stage.mend = agree


def other_samples(stage: Stage) -> None:
    """Let a client register again with other samples, and then with its own samples."""
    data, kept = (stage.folder / "clients" / str(HIT) / name for name in ("data.npz", "kept.npz"))

    def act() -> None:
        shutil.copy(data, kept)
        shutil.copy(stage.folder / "clients" / "0" / "data.npz", data)
        with np.load(kept) as found:
            np.savez(data, images=found["images"][:40], labels=found["labels"][:40])
        stage.die()

    stage.at("before", "train", 2, act)
    stage.at("after", "register", 2, lambda answer: (shutil.copy(kept, data), stage.die(), answer)[-1])


def all_gone(stage: Stage) -> None:
    """Kill two of three clients, which the user then starts again."""
    for n in (1, 2):
        stage.at("before", "logits", 2, lambda n=n: stage.die(n, looks=10**9), client=n)

    def again() -> None:
        stage.back = {}
        for n in (1, 2):
            stage.start(n)

    stage.mend = again


def server_harmed(name: str, harm: Callable[[Path], object]) -> Inject:
    """Damage a file of the server while the server is stopped."""

    def inject(stage: Stage) -> None:
        def act() -> None:
            (file,) = (stage.folder / "results").rglob(name)
            harm(file)
            stage.mend = file.unlink
            raise Killed

        stage.at("before", "train", 2, act)

    return inject
