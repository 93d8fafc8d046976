"""The transfer of one client's predictions of a round: its upload to the server, or its teachers from the server.

A prediction is due if the receiver has none in its cache that is recent enough. Due predictions, or those of them that
the sender chooses, are sent. Both ends keep the same cache, so a cached prediction costs no bytes, as in SCARLET
(https://arxiv.org/abs/2504.19602). The caches are part of the client's state (`ClientStates`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ktpfl_pipeline.core.knowledge.encodings import Encoding, Parts, encoding_of, pack
from ktpfl_pipeline.core.matrix import TINY
from ktpfl_pipeline.core.matrix.updates import project
from ktpfl_pipeline.core.settings import Knowledge
from ktpfl_pipeline.core.shares import rounded_up
from ktpfl_pipeline.core.transfer import sent as moved
from ktpfl_pipeline.core.weights import Params

FACTOR = -10.0
"""The factor of ``scaled`` predictions. The least likely class of a sample gets nearly all of the probability."""


@dataclass(frozen=True, eq=False)
class Delivery:
    """One client's predictions of a round, as the receiver has them."""

    values: Tensor  # (B, K) decoded predictions of this round, or cached ones; 0 for a sample without any
    known: Tensor  # (B,) bool, whether the receiver has a prediction of the sample
    size: int  # bytes that were sent
    kept: Params  # the cache and the error feedback after this transfer


@dataclass(frozen=True, eq=False)
class Message:
    """One client's predictions of a round before they are sent. All tensors are on the host."""

    values: Tensor  # (B, K) logits or distributions
    logits: bool  # whether the values are logits
    batch: Tensor  # (B,) the public samples that are predicted
    t: int  # the round
    public: int  # M, the number of all public samples
    # the earliest round in which a cached prediction may have been sent so that it is used again, () or (B,) by sample;
    # None means t - `knowledge.cache`
    since: Tensor | None = None
    chosen: Tensor | None = None  # (B,) bool, the samples that the sender chooses; None leaves it to `knowledge.select`


def deliver(knowledge: Knowledge, message: Message, kept: Params) -> Delivery:
    """Encode, send and decode a message, and update the cache and the error feedback.

    `kept` is `Delivery.kept` of the client's last transfer in this direction; empty before the first one.
    """
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
    state = {"residuals": residuals} if "residuals" in kept else {}  # also if nothing is sent
    if lost is not None:
        state["residuals"] = residuals.index_put((places,), lost.to(residuals))
    known, found = sent, torch.zeros_like(values)
    found[sent] = decoded
    if knowledge.cache or message.since is not None:
        state["values"] = kept.get("values", empty).index_put((places,), decoded)
        state["rounds"] = rounds.index_put((places,), torch.tensor(t, dtype=torch.int32))
        last = state["rounds"][batch]
        known = (last > 0) & (last >= since)  # a prediction that was due and not chosen is too old
        found = torch.where(known[:, None], state["values"][batch], 0.0)
    return Delivery(found, known, size + len(mask), state)


def noisy(logits: Tensor, deviation: float, stream: torch.Generator) -> Tensor:
    """Return logits, (B, K), of the probabilities plus N(0, `deviation`²), projected onto the simplex.

    Noise is drawn from `stream`, on the CPU, so that it is the same for any device.
    """
    noise = deviation * torch.randn(logits.shape, generator=stream, dtype=torch.float64)
    found = project(torch.softmax(logits.double(), dim=1) + moved(noise, logits.device))
    return found.clamp_min(TINY).log().to(logits)


def false_predictions(kind: str, logits: Tensor, stream: torch.Generator) -> Tensor:
    """Return what a malicious client uploads instead of its `logits`, (B, K); `kind` is `Adversaries.kind`.

    Malicious clients train, learn from their teachers and are evaluated as others are; only their uploads are false.
    Each kind is the counterpart, for predictions, of a known attack: `random` of the Gaussian attack (Blanchard et al.,
    NeurIPS 2017), `reversed` of label flipping y → K - 1 - y (Fang et al., USENIX Security 2020), and `scaled` of sign
    flipping with a larger size (Li et al., RSA, AAAI 2019). Noise is drawn from `stream` as in `noisy`.
    """
    if kind == "reversed":
        return logits.flip(-1)
    if kind == "scaled":
        return FACTOR * logits
    noise = moved(torch.randn(logits.shape, generator=stream), logits.device).to(logits.dtype)
    return logits.mean() + logits.std() * noise


def most_confident(logits: Tensor, due: Tensor, share: float) -> Tensor:
    """Return the `share` of the due samples in which the model is most confident, (B,) bool.

    Confidence is the largest class probability. The share is rounded up; among equals, earlier samples come first.

    Args:
        logits: (B, K).
        due: (B,) bool.
        share: the share of the due samples.
    """
    confidence = torch.softmax(logits.double(), dim=1).amax(dim=1).masked_fill(~due, -1.0)
    first = confidence.sort(descending=True, stable=True).indices[: rounded_up(share, int(due.sum()))]
    return torch.zeros_like(due).index_fill(0, first, True)


def transmit(
    knowledge: Knowledge, values: Tensor, logits: bool, residuals: Tensor
) -> tuple[Tensor, int, Tensor | None]:
    """Return the decoded values, (n, K), the bytes that were sent, and the encoding's error, (n, K).

    The error is None if the encoding has no error feedback. Decoded logits may differ from the sent ones by a constant
    per sample. Decoded distributions are projected onto the simplex if the encoding does not return distributions.

    Args:
        knowledge: the settings, with the encoding.
        values: (n, K) logits or distributions.
        logits: whether the values are logits.
        residuals: (n, K), the errors of the last transfer of the same samples, which error feedback adds.
    """
    encoding = encoding_of(knowledge)
    if encoding is None or not len(values):
        return values, values.float().nbytes, None
    given = _given(encoding, values, logits, residuals)
    parts = encoding.encoded(given)
    found = encoding.decoded(parts, (values.shape[0], values.shape[1]))
    lost = given - found if encoding.feeds_back else None
    return _used(encoding, found, logits).to(values), sum(part.nbytes for part in parts), lost


def encoded(knowledge: Knowledge, values: Tensor, logits: bool) -> Parts:
    """Return what a sender sends of its values, (n, K) with n of at least 1, if `knowledge` names an encoding.

    The encoding must have no error feedback. `decoded` returns what `transmit` does.
    """
    encoding = encoding_of(knowledge)
    assert encoding is not None and not encoding.feeds_back
    return encoding.encoded(_given(encoding, values, logits, values.new_zeros(())))


def decoded(knowledge: Knowledge, parts: Parts, shape: tuple[int, int], logits: bool) -> Tensor:
    """Return the values, (n, K) float64, that a receiver decodes from what `encoded` returned; `shape` is (n, K)."""
    encoding = encoding_of(knowledge)
    assert encoding is not None
    return _used(encoding, encoding.decoded(parts, shape), logits)


def _given(encoding: Encoding, values: Tensor, logits: bool, residuals: Tensor) -> Tensor:
    """Return the numbers that an encoding gets, (n, K) float64."""
    given = values.double()
    if logits:
        given = torch.softmax(given, dim=1) if encoding.of_probabilities else given - given.amax(dim=1, keepdim=True)
    if encoding.feeds_back:
        given = given + residuals
        given = given - given.mean(dim=1, keepdim=True)
    return given


def _used(encoding: Encoding, found: Tensor, logits: bool) -> Tensor:
    """Return decoded numbers as logits or distributions, (n, K) float64."""
    if encoding.of_probabilities:
        return found.clamp_min(TINY).log() if logits else found
    return found if logits else project(found)
