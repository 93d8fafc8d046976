"""One node of a pipeline."""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from kedro.pipeline import node
from kedro.pipeline.node import Node


def step(
    function: Callable[..., Any], inputs: str | list[str], output: str, *given: Any, namespace: str = "", **named: Any
) -> Node:
    """Return the node that calls a function, under the function's name.

    Args:
        function: what is called.
        inputs: the datasets that it takes, in its order.
        output: the dataset that it returns.
        given: arguments before the datasets, known when the pipeline is made.
        namespace: the box that kedro-viz shows it in; empty where the block is put into one.
        named: arguments after the datasets, likewise.
    """
    called = update_wrapper(partial(function, *given, **named), function)
    return node(called, inputs, output, name=function.__name__, namespace=namespace or None)
