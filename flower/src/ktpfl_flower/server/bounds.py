"""Bounds on the numbers in clients' replies, so that one client cannot spoil what the server mixes from all of them.

Types, shapes and labels are checked before (`operations.check_answer`). Here a reply is refused if its largest absolute
number is beyond `LARGEST`, or far beyond those of the other clients: more than `TIMES` their median, and more than
`USUAL`. A model is judged tensor by tensor, and by its predictions for public samples. The bounds are far above the
numbers of models that learn. This module does not judge numbers that are not finite: a client that sends them
diverged.
"""

import math
from collections.abc import Callable, Mapping
from statistics import median_low
from typing import Any

from torch import Tensor

from ktpfl_pipeline.core.weights import Params

LARGEST = {"predictions": 1e4, "prototypes": 1e4, "model": 1e6}
"""The largest absolute number in a reply, by what the operation gives."""
USUAL = {"predictions": 1e2, "prototypes": 1e2, "model": 1e1}
"""Absolute numbers up to this are accepted, whatever the other clients' numbers are."""
TIMES = 10.0
"""The largest factor between a client's largest number and the median of the other clients' largest numbers."""
PUBLIC = 100
"""The number of public samples for which the server predicts with a client's model."""
MODEL = "the server's predictions with its model"
Sizes = dict[tuple[str, str], float]
"""Largest absolute numbers, by what the numbers are and the name of the tensor."""


def sizes(gives: str, value: Any, model: Params | None, predict: Callable[[Params], Tensor]) -> Sizes:
    """Return the largest absolute number of each tensor in a reply.

    Args:
        gives: what the operation gives.
        value: the value of the reply.
        model: the model in the reply, if there is one.
        predict: returns a model's predictions for public samples, (B, K).
    """
    found: Sizes = {}
    if gives in ("predictions", "prototypes"):
        found[gives, ""] = _largest(value if gives == "predictions" else value[0])
    elif model is not None:
        found = {("model", name): _largest(each) for name, each in model.items() if each.is_floating_point()}
    if not all(map(math.isfinite, found.values())):
        return {}
    if model is not None and all(size <= LARGEST["model"] for size in found.values()):
        found["predictions", MODEL] = _largest(predict(model))
    return found


def beyond(found: Mapping[int, Sizes]) -> dict[int, str]:
    """Return the clients whose numbers are beyond the bounds, with the reason in words."""
    wrong: dict[int, str] = {}
    for n, own in found.items():
        for (kind, name), size in own.items():
            others = [each[kind, name] for m, each in found.items() if m != n and (kind, name) in each]
            usual = max(USUAL[kind], TIMES * median_low(others)) if others else math.inf
            if not (bound := min(usual, LARGEST[kind])) >= size:
                what = f"its tensor {name}" if kind == "model" else name or f"its {kind}"
                wrong.setdefault(n, f"the largest number of {what} is {size:.3g}, beyond the bound of {bound:.3g}")
    return wrong


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
