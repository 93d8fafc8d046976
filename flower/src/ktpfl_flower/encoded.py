"""Predictions that travel encoded, in both directions: what a client does with them.

A client stores what an encoding loses, as it stores a model, and adds it to its next upload.
"""

import torch
from torch import Tensor

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.client.outcome import Outcome
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.federation import check_finite
from ktpfl_pipeline.core.knowledge import channel
from ktpfl_pipeline.core.knowledge.encodings import Buffers
from ktpfl_pipeline.core.knowledge.settings import EncodingName, Knowledge
from ktpfl_pipeline.core.weights import Params

Bytes = tuple[Tensor, ...]
"""Buffers of an encoding as they travel: (bytes,) uint8 each."""


def logits(
    space: Workspace, n: int, params: Params, batch: Tensor, encoding: EncodingName, k: int, kept: Params
) -> Outcome[tuple[Params, Bytes]]:
    """Return what the client stores, and its encoded logits on the public samples `batch`, (B,) int64."""
    values, batch = operations.logits(space, n, params, batch).value.cpu(), batch.cpu()
    check_finite("predictions", {n: values})
    nothing = torch.zeros(len(space.setting.public), values.shape[1], dtype=values.dtype)
    residuals = kept.get("residuals", nothing).cpu()
    buffers, lost = channel.encode(Knowledge(encoding, k), values, True, residuals[batch])
    state = {} if lost is None else {"residuals": residuals.index_put((batch,), lost.to(residuals))}
    return Outcome((state, as_tensors(buffers)))


def distill(
    space: Workspace, n: int, params: Params, encoding: EncodingName, k: int, teacher: Bytes, batch: Tensor, t: int
) -> Outcome[Params]:
    """Fit the client's model to an encoded teacher."""
    shape = (len(batch), space.setting.classes)
    read = channel.decode(Knowledge(encoding, k), as_bytes(teacher), shape, False)
    return operations.distill(space, n, params, read, batch, t)


def as_tensors(buffers: Buffers) -> Bytes:
    """Return buffers as tensors, (bytes,) uint8 each."""
    return tuple(torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in buffers)


def as_bytes(travelled: Bytes) -> Buffers:
    """Return the buffers that `as_tensors` was given."""
    return tuple(each.numpy().tobytes() for each in travelled)
