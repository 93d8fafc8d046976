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
    """Return a node that calls `function` with datasets as positional and `given` as keyword arguments.

    The node wraps the function instead of using a partial, because kedro-viz shows the source of functions but not of
    partials.

    Args:
        function: the function, whose name becomes the name of the node.
        inputs: the names of the datasets that the function reads.
        output: the names of the datasets that the function returns.
        of: a suffix of the node's name, such as the method in ``train_kt_pfl``.
        namespace: the box in which kedro-viz shows the node; empty if the whole pipeline gets a namespace.
        given: keyword arguments that are fixed when the pipeline is made.
    """

    @wraps(function)
    def called(*datasets: Any) -> Any:
        return function(*datasets, **given)

    called.__signature__ = signature(partial(function, **given))  # type: ignore[attr-defined]
    name = f"{called.__name__}_{of}" if of else called.__name__
    return node(called, inputs, output, name=name, namespace=namespace or None)
