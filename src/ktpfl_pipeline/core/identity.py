"""Flat settings, their differences, and their short hash, which identify runs, sweeps, tunings and reports."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ktpfl_pipeline.core.errors import written


def digest(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 sum of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings as a flat mapping: ``{"training.epochs": 20, ...}``."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        result |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return result


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences of two settings as text, such as ``rounds=3, now 4``; empty if the settings are equal."""
    old, new = flat(then), flat(now)
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name}={written(old.get(name))}, now {written(new.get(name))}" for name in names)
