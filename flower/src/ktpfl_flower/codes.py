"""Encoded predictions: the client operations with ``knowledge.encoding``, and the check of what arrives.

Client and server encode what they send and decode what they get, as in `core.knowledge`, so that fewer bytes travel.
"""

from typing import Any

import torch
from torch import Tensor

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.knowledge import channel
from ktpfl_pipeline.core.knowledge.encodings import Parts
from ktpfl_pipeline.core.setting import DTYPES, Setting
from ktpfl_pipeline.core.settings import Knowledge
from ktpfl_pipeline.core.weights import Params


def logits(space: Workspace, n: int, params: Params, batch: Tensor) -> Outcome[Parts]:
    """Return what client n sends of its logits, (B, K), on the public samples `batch`."""
    outcome = operations.logits(space, n, params, batch)
    return outcome.giving(channel.encoded(space.setting.knowledge, outcome.value.cpu(), logits=True))


def distill(space: Workspace, n: int, params: Params, parts: Parts, batch: Tensor, t: int) -> Outcome[Params]:
    """Train client n's model toward the teacher that it decodes; see `core.client.operations.distill`."""
    teacher = decoded(space.setting.knowledge, parts, (len(batch), space.setting.classes), logits=False)
    return operations.distill(space, n, params, teacher, batch, t)


ENCODED: dict[Any, Any] = {operations.logits: logits, operations.distill: distill}
"""The operations that replace those of the main package if predictions travel encoded."""


def sent(setting: Setting, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an operation's arguments as they travel: a teacher encoded, or in the dtype in which clients compute."""
    match name, arguments:
        case "distill", (params, teacher, *others):
            return params, teacher.to(DTYPES[setting.compute.dtype]), *others
        case "distill_encoded", (params, teacher, *others):
            return params, channel.encoded(setting.knowledge, teacher.cpu(), logits=False), *others
    return arguments


def decoded(knowledge: Knowledge, parts: Any, shape: tuple[int, int], logits: bool) -> Tensor:
    """Return the predictions, (B, K) float64, that were sent.

    Args:
        knowledge: the settings, with the encoding.
        parts: what arrived.
        shape: (B, K).
        logits: whether the predictions are logits; else probabilities.

    Raises:
        InputError: if `parts` are not encoded predictions of this shape.
    """
    wanted = channel.encoded(knowledge, torch.zeros(shape, dtype=torch.float64), logits)
    forms = [(each.dtype, each.shape) for each in wanted]
    tensors = isinstance(parts, tuple) and all(isinstance(part, Tensor) for part in parts)
    if not tensors or [(part.dtype, part.shape) for part in parts] != forms:
        raise InputError(
            f"expected predictions for {shape[0]} samples and {shape[1]} classes, encoded as {knowledge.encoding}."
        )
    if knowledge.encoding == "top_k" and not bool((parts[1].long() < shape[1]).all()):
        raise InputError(f"it names a class that does not exist; there are {shape[1]}.")
    return channel.decoded(knowledge, tuple(part.cpu() for part in parts), shape, logits)
