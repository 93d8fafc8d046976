"""One node of a pipeline."""

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any

from kedro.pipeline import node
from kedro.pipeline.node import Node


def step(
    function: Callable[..., Any],
    inputs: str | list[str],
    output: str | list[str],
    *,
    of: str = "",
    namespace: str = "",
    **given: Any,
) -> Node:
    """Return the node that calls a function with datasets, and with what is `given` when the pipeline is made.

    What is called is a function with the source of the given one, which kedro-viz shows: of a partial it shows none.
    The node has the function's name, followed by what it is a step `of`: ``train_kt_pfl``. `namespace` is the box that
    kedro-viz shows it in; empty where the block is put into one.
    """

    @wraps(function)
    def called(*datasets: Any) -> Any:
        return function(*datasets, **given)

    called.__signature__ = signature(partial(function, **given))  # type: ignore[attr-defined]
    name = f"{called.__name__}_{of}" if of else called.__name__
    return node(called, inputs, output, name=name, namespace=namespace or None)
