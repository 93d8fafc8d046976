"""Checks of the values that a method returns, before the engine uses or stores them.

The checks read only types and names. They copy no tensor, do not wait for a device, and fetch no remote model.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from numbers import Real
from types import NoneType
from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.extensions import called
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Handle

PLAIN = frozenset({*(int, float, bool, NoneType, str, bytes, complex), *(torch.dtype, torch.device, torch.Size)})
"""Types besides tensors that a checkpoint can restore. Subclasses, such as ``numpy.float64``, cannot be restored."""
SEQUENCES = frozenset({list, tuple, set})


def check_methods(methods: Mapping[str, Any], setting: Setting) -> None:
    """Check that methods, by name, can use the models and the samples of a federation's clients.

    Raises InputError with all methods that cannot, the reasons, and the methods that can.
    """
    _check_validation(methods, setting)
    found = {name: misfits for name, method in methods.items() if (misfits := method.misfits(setting))}
    if not found:
        return
    reasons = {architecture: reason for misfits in found.values() for architecture, reason in misfits.items()}
    why = "; ".join(f"{architecture!r}: {reason}" for architecture, reason in reasons.items())
    raise InputError(
        f"{', '.join(found)} cannot be run on these models, because a method on heads needs a suitable layer for the "
        f"logits ({why}): choose other architectures{_instead(methods, found)}."
    )


def _check_validation(methods: Mapping[str, Any], setting: Setting) -> None:
    unfit = [name for name, method in methods.items() if method.needs_validation]
    without = [client.id for client in setting.clients if not len(client.validation)]
    if unfit and without:
        raise InputError(
            f"{', '.join(unfit)} cannot be run, because every client needs validation samples, and client "
            f"{without[0]} has none: set partition.validation_share higher{_instead(methods, unfit)}."
        )


def _instead(methods: Mapping[str, Any], unfit: Collection[str]) -> str:
    """Return the advice to run only the methods that fit; empty if no method fits."""
    rest = [name for name in methods if name not in unfit]
    return f", or run the methods that fit: compare={'+'.join(rest)}" if rest else ""


def check_state(method: Any, state: Any) -> None:
    """Check that a checkpoint can store and restore a state that a method's `init` or `round` returned.

    InputError names the method, the field, and the type that is in it.
    """
    if isinstance(state, type) or not is_dataclass(state):
        raise InputError(
            f"init of {name_of(method)} returned {called(state)}; it must return the state, an object of a frozen "
            "dataclass, such as PersonalState(fed.initial_models())."
        )
    for entry in fields(state):
        if odd := _odd(getattr(state, entry.name)):
            raise InputError(
                f"The state of {name_of(method)} has {odd} in `{entry.name}`; a state holds tensors, numbers, texts, "
                "and lists, tuples and dicts of these: torch.as_tensor makes a tensor of an array; of another object "
                "keep the numbers."
            )


def check_round(method: Any, before: Any, found: Any, cohort: list[int]) -> None:
    """Check that a method's round, from state `before` and with this cohort, returned a valid result.

    InputError names the method, and the part that is missing or has a wrong type.
    """
    round_of, state = f"round of {name_of(method)}", type(before).__name__
    if not (isinstance(found, tuple) and len(found) == 2):
        raise InputError(f"{round_of} returned {called(found)}; it must return a pair, ({state}, RoundReport).")
    after, report = found
    if type(after) is not type(before) or not isinstance(report, RoundReport):
        raise InputError(
            f"{round_of} returned a pair of {called(after)} and {called(report)}; it must return the state that "
            f"follows, a {state} as before, and a RoundReport."
        )
    for part in ("after_local", "traffic"):
        if missing := [n for n in cohort if n not in getattr(report, part)]:
            raise InputError(
                f"{round_of} reported no {part} of client {missing[0]}; RoundReport.{part} must have an entry for each "
                "of the cohort."
            )
    for name, value in report.metrics.items():
        if not isinstance(value, Real) and not (isinstance(value, Tensor) and value.numel() == 1):
            raise InputError(f"{round_of} reported {called(value)} as the metric {name!r}; a metric is one number.")


def name_of(method: Any) -> str:
    """Return the path of a method's class, ``module:class``."""
    return f"{type(method).__module__}:{type(method).__qualname__}"


def _odd(value: Any) -> str:
    """Return the name of the first value in a part of a state that a checkpoint cannot restore; empty without one."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, Tensor | Handle):
        return ""
    if isinstance(value, dict):  # of any kind: it is kept as a dict
        return next(filter(None, map(_odd, (*value, *value.values()))), "")
    if kind in SEQUENCES:
        return next(filter(None, map(_odd, value)), "")
    return called(value)
