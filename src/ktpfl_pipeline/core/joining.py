"""How newcomers, clients that were held out of training, join a federation: their first models, and the bytes sent.

Implementations of `Method.join` use these functions, and `judge` in `core/rounds/newcomers.py` evaluates the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, select, wire_bytes

Teacher = Callable[[int, Tensor], Tensor]
"""Called with a newcomer and n clients' logits on the public batch, (n, B, K): returns its teacher, (B, K)."""


@dataclass(frozen=True, eq=False)
class Joined:
    """The models with which newcomers start."""

    models: Models  #: the models by newcomer, before any local training of these models
    #: bytes of joining, by newcomer and by trained client that sent something for it
    traffic: dict[int, Traffic] = field(default_factory=dict)


def given(models: Models, sent: Models | None = None) -> Joined:
    """Return newcomers that start with models from the server, by newcomer.

    `sent` are the parts of the models that the server sends, which are counted; None means whole models.
    """
    sizes = {n: wire_bytes(params) for n, params in (models if sent is None else sent).items()}
    return Joined(models, {n: Traffic(parameters_down=size) for n, size in sizes.items()})


def taught(
    there: Models,
    newcomers: Sequence[int],
    fed: Federation,
    teacher: Teacher,
    *,
    introduced: bool = False,
    start: Models | None = None,
) -> Joined:
    """Return newcomers whose first models were distilled from public predictions of the trained clients.

    The trained clients predict the last round's public batch once more with their final models. A newcomer distills
    for T·R epochs on this batch, as many as a client that took part in every round.

    Args:
        there: the models of the trained clients.
        newcomers: the ids of the newcomers.
        fed: the federation of trained clients and newcomers. Its distillation has T·R epochs.
        teacher: see `Teacher`.
        introduced: whether the last of the logits that `teacher` gets are the newcomer's own. A temporary copy of its
            first model makes them after E epochs of local training.
        start: the models that the server sends to newcomers, which replace their initial models; None if it sends none.
    """
    batch = fed.public_batch(fed.rounds)
    sizes = {n: wire_bytes(params) for n, params in (start or {}).items()}
    start, uploads = {**select(fed.initial_models(), newcomers), **(start or {})}, fed.logits(there, batch)
    seen = dict.fromkeys(newcomers, uploads)
    if introduced:
        own = fed.logits(fed.fine_tune(start, fed.training.epochs), batch)
        seen = {n: torch.cat([uploads, logits[None]]) for n, logits in zip(newcomers, own, strict=True)}
    teachers = torch.stack([teacher(n, logits) for n, logits in seen.items()])
    prediction, public = 4 * len(batch) * fed.classes, fed.public_bytes()
    up, asked = prediction * introduced, Traffic(predictions_up=prediction, public_down=public)
    one = Traffic(predictions_up=up, predictions_down=prediction, public_down=public)
    joining = {n: replace(one, parameters_down=sizes.get(n, 0)) for n in newcomers}
    return Joined(fed.distill(start, teachers, batch, 0), {**dict.fromkeys(there, asked), **joining})
