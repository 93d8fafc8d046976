"""The head of a model, its last linear layer; the rest is its extractor of features."""

from torch import nn

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.weights import Params, loaded


def head_of(module: nn.Module) -> tuple[str, nn.Linear]:
    """Return the head of a model, its last linear layer, and its name there.

    Raises:
        InputError: if there is none.
    """
    layers = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise InputError(
            f"{type(module).__name__} has no linear layer to be its head, whose input would be its feature: give it "
            "one, or leave out the methods on features and heads (fedproto, lg_fedavg and others; docs/methods.md)."
        )
    return layers[-1]


def split(module: nn.Module) -> tuple[nn.Module, nn.Linear]:
    """Return a model as its extractor, the module itself without its head, and the head."""
    name, head = head_of(module)
    module.set_submodule(name, nn.Identity())
    return module, head


def linear(head: Params) -> nn.Linear:
    """Return a linear layer with the weights of a head, ``weight`` (K, F) and, if there is one, ``bias`` (K,)."""
    classes, width = head["weight"].shape
    return loaded(lambda: nn.Linear(width, classes, bias="bias" in head), head)
