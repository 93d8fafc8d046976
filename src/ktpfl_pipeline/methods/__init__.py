"""One file per method, and the registry: a new method is one file and one line here."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.method import Method
from ktpfl_pipeline.methods.fedmd import FedMD
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.local import Local

METHODS: dict[str, Callable[..., Method[Any]]] = {
    "kt_pfl": KTpFL,
    # The paper's Eq. (8) with its constants and the least repair, a projection.
    "kt_pfl_paper_literal": partial(KTpFL, update="pgd", step=0.01, steps=1, divergence_weight=1.0),
    # The update of the authors' released code, which also takes it before mixing.
    "kt_pfl_authors": partial(KTpFL, update="authors", step=1.0, steps=1, order="coefficients_first"),
    "fedmd": FedMD,
    "local": Local,
}

TITLES = {
    "kt_pfl": "KT-pFL",
    "kt_pfl_paper_literal": "KT-pFL (paper-literal)",
    "kt_pfl_authors": "KT-pFL (authors' code)",
    "fedmd": "FedMD",
    "local": "Local only",
}


def create(name: str, hyperparameters: Mapping[str, Any] | None = None) -> Method[Any]:
    """Return the method called `name` with `hyperparameters` in place of its defaults.

    Raises:
        InputError: if there is no such method or hyperparameter, or a value is out of range.
    """
    if name not in METHODS:
        raise InputError(_unknown("method", name, METHODS))
    make = METHODS[name]
    known = [entry.name for entry in fields(make.func if isinstance(make, partial) else make)]  # type: ignore[arg-type]
    for given in hyperparameters or {}:
        if given not in known:
            raise InputError(_unknown(f"hyperparameter of {name}", given, known))
    return make(**(hyperparameters or {}))


def _unknown(kind: str, given: str, known: Any) -> str:
    near = difflib.get_close_matches(given, list(known), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known) or 'none: it has none'}."
    return f"There is no {kind} called {given!r}; {hint}"
