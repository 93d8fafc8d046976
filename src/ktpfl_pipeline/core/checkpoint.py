"""Checkpoints: one file per run, replaced whole after each round, readable without running any code from it."""

import os
from pathlib import Path
from typing import Any

import torch

from ktpfl_pipeline.core.errors import InputError


def save(path: Path, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, strings, lists and dicts of them) so that a reader sees all of it or none.

    A process killed at any moment leaves either the checkpoint that was there or the new one: the content goes to a
    file beside it, is forced to the disk, and takes the name in one step.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load(path: Path, settings: dict[str, Any], device: torch.device) -> dict[str, Any] | None:
    """Return the content of the checkpoint at `path`, or None where there is none.

    Args:
        path: the file.
        settings: what the run was asked to do; must equal what the checkpoint was made with.
        device: where its tensors go.

    Raises:
        InputError: if the file cannot be read, or was made with other settings.
    """
    if not path.exists():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        made_with = dict(content["settings"])
    except Exception as error:  # bytes that are no checkpoint make the reader stumble in any way at all
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"The checkpoint {path} cannot be read ({reason}); delete it to start the run anew."
        ) from error
    different = sorted(name for name in made_with.keys() | settings.keys() if made_with.get(name) != settings.get(name))
    if different:
        changes = ", ".join(f"{name}={made_with.get(name)!r}, now {settings.get(name)!r}" for name in different)
        raise InputError(
            f"The checkpoint {path} was made with other settings ({changes}); put them back, or delete the checkpoint."
        )
    return content
