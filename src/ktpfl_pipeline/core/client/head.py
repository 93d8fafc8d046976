"""The head of a model, the layer that makes its logits; the rest is its extractor of features."""

from torch import nn

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.model_facts import Head
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.weights import Params, loaded


def head_of(setting: Setting, architecture: str, needed: str = "layer") -> Head:
    """Return the head of an architecture.

    Args:
        setting: what builds it, and for which inputs.
        architecture: its name.
        needed: one of `model_facts.NEEDS`.

    Raises:
        InputError: if it has none of this kind.
    """
    facts = setting.facts(architecture)
    if reason := facts.lacks(needed):
        raise InputError(
            f"The model {architecture!r} does not fit methods on features and heads: {reason}. Take another "
            "architecture, or leave out these methods (docs/methods.md)."
        )
    assert facts.head is not None
    return facts.head


def linear(head: Params) -> nn.Linear:
    """Return a linear layer with the weights of a head, ``weight`` (K, F) and, if there is one, ``bias`` (K,)."""
    classes, width = head["weight"].shape
    return loaded(lambda: nn.Linear(width, classes, bias="bias" in head), head)
