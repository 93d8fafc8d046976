"""One node of a pipeline."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from kedro.pipeline import node
from kedro.pipeline.node import Node


def step(
    function: Callable[..., Any],
    inputs: str | list[str],
    output: str,
    *,
    of: str = "",
    namespace: str = "",
    **given: Any,
) -> Node:
    """Return the node that calls a function, under the function's name.

    What is given becomes the default of keyword arguments in a copy of the function: unlike a partial, it is a function
    with its own source, which kedro-viz shows.

    Args:
        function: what is called.
        inputs: the datasets that it takes, in its order.
        output: the dataset that it returns.
        of: whose step it is, as the node's name says after the function's: ``train_kt_pfl``.
        namespace: the box that kedro-viz shows it in; empty where the block is put into one.
        given: keyword arguments that are known when the pipeline is made.
    """
    own = cast("FunctionType", function)
    called = FunctionType(own.__code__, own.__globals__, own.__name__)
    called.__annotations__, called.__kwdefaults__ = own.__annotations__, given
    name = f"{own.__name__}_{of}" if of else own.__name__
    return node(called, inputs, output, name=name, namespace=namespace or None)
