"""What the overview of all comparisons keeps of one: written as plain values, and read again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ktpfl_pipeline.analysis.results import MethodResult

KEPT = ("title", "final", "traffic", "seconds", "rounds", "seeds", "run_ids", "curve")
"""What a comparison leaves of each method for the overview."""


def comparison(name: str, results: Sequence[MethodResult]) -> dict[str, Any]:
    """Return the part of a comparison that the overview of all comparisons needs, in plain values.

    It has the comparison's ``name``, the ``settings`` that all its methods share, and ``methods``: the values `KEPT` of
    each method, by registry name.
    """
    kept = [replace(result, runs=[]).to_dict() for result in results]
    return {
        "name": name,
        "settings": results[0].settings,
        "methods": {values["method"]: {part: values[part] for part in KEPT} for values in kept},
    }


def compared(content: Mapping[str, Any]) -> list[MethodResult]:
    """Return the results, without their runs, that `comparison` wrote."""
    left = {"settings": content["settings"], "hyperparameters": {}, "runs": []}
    return [MethodResult.from_dict({"method": name, **values, **left}) for name, values in content["methods"].items()]
