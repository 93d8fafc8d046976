"""Parts that executors with workers in other processes share."""

from dataclasses import fields
from typing import Any

from ktpfl_pipeline.core.errors import InputError, named
from ktpfl_pipeline.core.setting import Setting

ATTEMPTS = 2
"""The number of workers that one client's call may end before the run stops."""


def fields_of(setting: Setting, **changes: Any) -> dict[str, Any]:
    """Return the arguments with which another process makes a copy of `setting`, with `changes`."""
    return {entry.name: getattr(setting, entry.name) for entry in fields(Setting)} | changes


def call_failed(n: int | str, phase: str, workers: str, how: str) -> InputError:
    """Return the error for a call of client n that ended `ATTEMPTS` workers; `how` says how the last one ended."""
    return InputError(
        f"{named(n)}'s {phase} ended {ATTEMPTS} {workers}, the last by {how}; the usual reason is too little memory: "
        "set fewer workers in compute.executor, or serial, and give the same command again."
    )
