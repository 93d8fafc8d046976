"""The way of one client's predictions, up or down: what is due, what is sent of it, and what both ends remember.

Both ends know when a prediction was sent last, so that a cached one costs nothing, as with SCARLET's synchronized
caches (https://arxiv.org/abs/2504.19602). What they remember belongs to the client (`ClientStates`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ktpfl_pipeline.core.knowledge.encodings import encoding_of, pack
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.updates import project
from ktpfl_pipeline.core.settings import Knowledge
from ktpfl_pipeline.core.shares import rounded_up
from ktpfl_pipeline.core.weights import Params


@dataclass(frozen=True, eq=False)
class Delivery:
    """One client's predictions of a round at the receiver."""

    values: Tensor  # (B, K) decoded, or of an earlier round; 0 where nothing is known
    known: Tensor  # (B,) which of the samples it knows a prediction of
    size: int  # bytes that were sent
    kept: Params  # what both ends remember of it


@dataclass(frozen=True, eq=False)
class Message:
    """One client's predictions of a round, before anything is sent; all on the host, where messages are made."""

    values: Tensor  # (B, K) logits, or distributions
    logits: bool  # which of these
    batch: Tensor  # (B,) of which public samples
    t: int  # the round
    public: int  # M, public samples in all
    # the round since which an earlier prediction still serves, or (B,) of each; None is that of `knowledge.cache`
    since: Tensor | None = None
    chosen: Tensor | None = None  # (B,) which of the due ones the sender gives; None is all


def deliver(knowledge: Knowledge, message: Message, kept: Params) -> Delivery:
    """Encode, send, decode, and remember; `kept` is of the client's rounds before, empty at first."""
    batch, t, values = message.batch, message.t, message.values
    kept = {name: part.cpu() for name, part in kept.items()}  # a checkpoint brings all states to the device
    rounds = kept.get("rounds", torch.zeros(message.public, dtype=torch.int32))
    since = torch.tensor(t - knowledge.cache) if message.since is None else message.since
    due = (rounds[batch] == 0) | (rounds[batch] < since)
    chosen = message.chosen
    if chosen is None and message.logits and knowledge.select < 1.0:
        chosen = most_confident(values, due, knowledge.select)
    sent = due if chosen is None else due & chosen
    mask = b"" if chosen is None else pack(sent[due])
    empty, places = torch.zeros(message.public, values.shape[1], dtype=values.dtype), batch[sent]
    residuals = kept.get("residuals", empty)
    decoded, size, lost = transmit(knowledge, values[sent], message.logits, residuals[places])
    state: dict[str, Tensor] = {}
    if lost is not None:
        state["residuals"] = residuals.index_put((places,), lost.to(residuals))
    known, found = sent, torch.zeros_like(values)
    found[sent] = decoded
    if knowledge.cache or message.since is not None:
        state["values"] = kept.get("values", empty).index_put((places,), decoded)
        state["rounds"] = rounds.index_put((places,), torch.tensor(t, dtype=torch.int32))
        last = state["rounds"][batch]
        known = (last > 0) & (last >= since)  # one that was due and was not chosen is too old
        found = torch.where(known[:, None], state["values"][batch], 0.0)
    return Delivery(found, known, size + len(mask), state)


def most_confident(logits: Tensor, due: Tensor, share: float) -> Tensor:
    """Return the `share` of the samples `due`, at least one, with the largest probability, (B,) bool; ties in order."""
    confidence = torch.softmax(logits.double(), dim=1).amax(dim=1).masked_fill(~due, -1.0)
    first = confidence.sort(descending=True, stable=True).indices[: rounded_up(share, int(due.sum()))]
    return torch.zeros_like(due).index_fill(0, first, True)


def transmit(
    knowledge: Knowledge, values: Tensor, logits: bool, residuals: Tensor
) -> tuple[Tensor, int, Tensor | None]:
    """Return values as the receiver has them, the bytes that traveled, and what is lost, if it is fed back.

    The values, (n, K), are logits where `logits` is true, which are known up to a constant of each sample. Else they
    are distributions, and the nearest one to what arrived is returned. `residuals`, (n, K), are what was lost when the
    same samples were sent last.
    """
    encoding = encoding_of(knowledge)
    if encoding is None or not len(values):
        return values, values.float().nbytes, None
    given = values.double()
    if logits:
        given = torch.softmax(given, dim=1) if encoding.of_probabilities else given - given.amax(dim=1, keepdim=True)
    if encoding.feeds_back:
        given = given + residuals
        given = given - given.mean(dim=1, keepdim=True)
    found, size = encoding.received(given)
    lost = given - found if encoding.feeds_back else None
    if encoding.of_probabilities:
        found = found.clamp_min(TINY).log() if logits else found
    elif not logits:
        found = project(found)
    return found.to(values), size, lost
