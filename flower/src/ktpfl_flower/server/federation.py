"""The server's federation: initial models that clients draw themselves, and predictions that travel encoded."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ktpfl_flower import codes
from ktpfl_flower.server.executor import RealExecutor
from ktpfl_flower.server.handles import Drawn
from ktpfl_flower.wire import STAYS
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.base import Key
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.knowledge import channel
from ktpfl_pipeline.core.knowledge.channel import Delivery, Message
from ktpfl_pipeline.core.setting import DTYPES, Split
from ktpfl_pipeline.core.weights import Models, Params


class RealFederation(Federation):
    """A federation whose clients draw their initial models themselves."""

    executor: RealExecutor

    def initial_model(self, architecture: str) -> Params:
        """Return a handle of the initial weights of an architecture, which draws them when it is opened."""
        return Drawn(self, architecture)

    def distill(
        self,
        models: dict[Key, Params],
        teachers: Tensor,
        batch: Tensor,
        t: int,
        factors: Mapping[Key, float] | None = None,
    ) -> dict[Key, Params]:
        """Return each model fitted to its teacher, which travels encoded, or in the dtype in which clients compute."""
        sent, self.executor.encoded = dict[Any, Any](self.executor.encoded), {}
        if sent.keys() == models.keys():  # what `delivered` has just encoded
            calls: dict[Any, Any] = {n: (models[n], sent[n], batch, t) for n in models}
            for n, factor in (factors or {}).items():
                calls[n] = (*calls[n], factor)
            return self.run_training("distill", codes.distill, calls, models, recipe=self.distillation)
        return super().distill(models, teachers.to(DTYPES[self.compute.dtype]), batch, t, factors)

    def logits(self, models: Models, batch: Tensor, t: int = 0, *, uploaded: bool = True) -> Tensor:
        """Return the logits of the clients' models, which travel encoded if clients upload them."""
        self.executor.encodes = uploaded and self.knowledge.encoding != "float32"
        try:
            return super().logits(models, batch, t, uploaded=uploaded)
        finally:
            self.executor.encodes = False

    def delivered(self, n: int, message: Message, kept: Params) -> Delivery:
        """Return the delivery of a message: an upload has been encoded by the client, and teachers are encoded here."""
        knowledge, (size, classes) = self.knowledge, message.values.shape
        if knowledge.encoding == "float32":
            return super().delivered(n, message, kept)
        values, parts = message.values, channel.encoded(knowledge, message.values, message.logits)
        if not message.logits:
            self.executor.encoded[n] = parts
            values = channel.decoded(knowledge, parts, (size, classes), logits=False).to(values)
        sent = sum(part.nbytes for part in parts)  # the same for any values
        return Delivery(values, torch.ones(size, dtype=torch.bool), sent, {})

    def held_out(self, n: int, split: Split, limit: int | None = None) -> LabeledDataset:
        """Raise InputError: only a client itself has its samples."""
        raise InputError(STAYS)
