"""The exchange that methods on soft predictions share: train, predict on the public batch, mix, distill.

A round of such a method is `train_and_predict`, the method's rule for the teachers, and `teach`. Predictions are
encoded as the settings `knowledge` specify (package `knowledge/`). A method gets the decoded values, and the bytes of
the encoded ones are counted. `both_ways` counts the bytes of models that are sent.

Arguments that the functions share:

- ``fed``: the federation.
- ``cohort``: the ids of the clients that take part.
- ``models``: the models by client.
- ``t``: the round.
- ``batch``: (B,) indices of public samples; None means the round's public batch.
- ``chosen``: (|S|, B) bool, the samples of which each client sends its prediction; None leaves the choice to
  ``knowledge.select``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.knowledge.channel import Delivery, Message
from ktpfl_pipeline.core.knowledge.encodings import pack
from ktpfl_pipeline.core.matrix.blocks import among
from ktpfl_pipeline.core.matrix.teachers import check_teachers, mix_teachers, soft_predictions
from ktpfl_pipeline.core.method import PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, select, wire_bytes


@dataclass(frozen=True, eq=False)
class Upload:
    """The cohort's models after local training, and the predictions that the server received.

    A public sample of which no client sent a prediction is not in `batch`. If only some clients sent one, the mean of
    these predictions is used for the other clients.
    """

    models: Models  #: the models after local training
    batch: Tensor  #: (B,) indices of the round's public samples D_r
    logits: Tensor  #: (|S|, B, K) the logits z on these samples, as the server received them
    soft: Tensor  #: (|S|, B, K) float64, s = softmax(z / T)
    sizes: dict[int, int] = field(default_factory=dict)  #: bytes that each client sent


def train_and_predict(
    fed: Federation,
    models: Models,
    cohort: list[int],
    t: int,
    batch: Tensor | None = None,
    chosen: Tensor | None = None,
) -> Upload:
    """Train the cohort's models locally, predict public samples with each, and upload the predictions."""
    return predict(fed, models, fed.train(select(models, cohort), t), t, batch, chosen)


def predict(
    fed: Federation,
    models: Models,
    trained: Models,
    t: int,
    batch: Tensor | None = None,
    chosen: Tensor | None = None,
) -> Upload:
    """Predict public samples with the cohort's models after local training, and upload the predictions.

    A straggler's predictions are those of an earlier model of that client; see `_arriving`. `models` are the models
    before this local training.
    """
    batch = fed.public_batch(t) if batch is None else batch
    arriving = _arriving(fed, models, trained)
    if not len(batch):
        nothing = torch.zeros(len(trained), 0, fed.classes, dtype=torch.float64, device=fed.device)
        return Upload(trained, batch, nothing, nothing, dict.fromkeys(trained, 0))
    temperature = fed.distillation.temperature
    if fed.knowledge.plain and chosen is None:
        logits = fed.logits(arriving, batch, t)
        sizes = dict.fromkeys(trained, logits[0].float().nbytes)
        return Upload(trained, batch, logits, soft_predictions(logits, temperature), sizes)
    batch = batch.cpu()
    found = _delivered(fed, "upload", trained, fed.logits(arriving, batch, t), batch, t, chosen=chosen)
    known = torch.stack([each.known for each in found.values()])  # (|S|, B)
    some = known.any(dim=0)
    arrived = sent(torch.stack([each.values for each in found.values()])[:, some], fed.device)
    known = sent(known[:, some], fed.device)
    soft = _filled(soft_predictions(arrived, temperature), known)
    sizes = {n: each.size for n, each in found.items()}
    return Upload(trained, batch[some], _filled(arrived, known), soft, sizes)


def _arriving(fed: Federation, models: Models, trained: Models) -> Models:
    """Return the models whose predictions arrive in this round, by client.

    For a straggler this is the model that it trained `delay` turns ago, where a turn is a round in which it takes part.
    In its first `delay` turns it is the model with which the straggler started its first turn.
    """
    slow, states = [n for n in trained if fed.current.late_predictions and n in fed.straggler_ids], fed.client_states
    arriving = dict(trained)
    for age in range(1, fed.reliability.stragglers.delay + 1):  # each stored model becomes one turn older
        newer = {n: arriving[n] for n in slow}
        arriving |= {n: states.before(f"late {age}", n) or models[n] for n in slow}
        states.add(f"late {age}", newer)
    return arriving


def teach(
    fed: Federation,
    state: PersonalState,
    upload: Upload,
    teachers: Tensor,
    t: int,
    since: Tensor | None = None,
    factors: Mapping[int, float] | None = None,
) -> PersonalRound:
    """Send the teachers, distill the received ones into the cohort's models, and end the round.

    The traffic of a client is its upload, its teachers, and the public batch. If only a part of the public batch is
    taught, one bit per sample of the batch names this part.

    Args:
        state: the state after the previous round.
        upload: the uploads of the cohort.
        teachers: probabilities, (|S|, B, K), or (B, K) if all clients get the same teachers.
        since: (B,) the round in which each teacher was made. A client that has received a teacher in that round or
            later is not sent it again. None means that ``knowledge.cache`` decides.
        factors: the factors of the clients' distillation losses; None means 1.

    Raises InputError if a teacher is not a distribution.
    """
    models = upload.models
    learned = teachers.expand(len(models), *teachers.shape[-2:])
    sizes = dict.fromkeys(models, learned[:1].float().nbytes)
    if len(upload.batch) and (not fed.knowledge.plain or since is not None):
        values, batch, made = learned.cpu(), upload.batch.cpu(), None if since is None else since.cpu()
        check_teachers(values, list(models))
        found = _delivered(fed, "teachers", models, values, batch, t, since=made)
        sizes = {n: each.size + _named(each, batch, made, t) for n, each in found.items()}
        received = sent(torch.stack([each.values for each in found.values()]), fed.device)
        distilled = fed.distill(models, received, batch, t, factors)
    else:
        distilled = fed.distill(models, learned, upload.batch, t, factors) if len(upload.batch) else models
    whole = fed.public_batch(t)
    mask = b"" if len(upload.batch) == len(whole) else pack(torch.isin(whole, upload.batch.cpu()))
    traffic = {
        n: Traffic(predictions_up=upload.sizes[n], predictions_down=size + len(mask), public_down=fed.public_bytes())
        for n, size in sizes.items()
    }
    return PersonalState({**state.models, **distilled}), RoundReport(models, traffic)


def _delivered(
    fed: Federation,
    way: Literal["upload", "teachers"],
    models: Models,
    values: Tensor,
    batch: Tensor,
    t: int,
    since: Tensor | None = None,
    chosen: Tensor | None = None,
) -> dict[int, Delivery]:
    """Send each client's predictions, (|S|, B, K) in the order of `models`, and return the deliveries by client.

    The caches and the error feedback of both ends are stored in `Federation.client_states`.
    """
    chosen_by, found = [None] * len(models) if chosen is None else chosen.cpu(), {}
    for n, own, some in zip(models, values.cpu(), chosen_by, strict=True):
        message = Message(own, way == "upload", batch, t, len(fed.public), since, some)
        found[n] = fed.delivered(n, message, fed.client_states.before(way, n))
    fed.client_states.add(way, {n: each.kept for n, each in found.items()})
    return found


def _named(delivery: Delivery, batch: Tensor, made: Tensor | None, t: int) -> int:
    """Return the bytes that tell a client which teachers of a message were made in earlier rounds.

    This takes one bit per sample, or nothing if the message has only teachers of this round. A client that missed no
    teacher gets only those, and knows their samples, because it was asked to predict them.
    """
    if made is None:
        return 0
    earlier = (delivery.kept["rounds"][batch] == t) & (made < t)
    return len(pack(earlier)) if earlier.any() else 0


def _filled(values: Tensor, known: Tensor) -> Tensor:
    """Return values, (|S|, B, K), with unknown ones replaced by the mean of the known ones for the same sample.

    `known`, (|S|, B) bool, has at least one known value for each sample.
    """
    count = known[..., None].to(values)
    mean = (values * count).sum(dim=0) / count.sum(dim=0)
    return torch.where(known[..., None], values, mean)


def teach_mixtures(
    fed: Federation,
    state: PersonalState,
    upload: Upload,
    weights: Tensor,
    t: int,
    factors: Mapping[int, float] | None = None,
) -> PersonalRound:
    """Teach each client a mixture of the cohort's soft predictions, and report the weights of the mixtures.

    `weights`, (|S|, |S|) with row = student, may have any float dtype. Raises InputError if they have another shape.
    The report has them as an (N, N) matrix, in which every client outside the cohort learns only from itself.
    """
    size = len(upload.models)
    if weights.shape != (size, size):
        raise InputError(f"The weights of teachers have the shape {tuple(weights.shape)}; it must be {(size, size)}.")
    weights = weights.to(upload.soft)
    after, report = teach(fed, state, upload, mix_teachers(weights, upload.soft), t, factors=factors)
    shown = among(weights, fed.rows(list(upload.models)), len(fed.clients))
    return after, RoundReport(report.after_local, report.traffic, shown)


def prototypes(cohort: list[int], owned: Tensor, numbers: int) -> dict[int, Traffic]:
    """Return the traffic of a round in which each client uploads its prototypes and downloads those of all classes.

    `owned`, (|S|, K) bool, are the classes for which each client has a prototype. `numbers` is the number of entries of
    a prototype, four bytes each.
    """
    down = all_prototypes(owned.shape[1], numbers)
    counts = owned.sum(dim=1).tolist()
    return {n: replace(down, prototypes_up=4 * numbers * own) for n, own in zip(cohort, counts, strict=True)}


def all_prototypes(classes: int, numbers: int) -> Traffic:
    """Return the traffic of a download of all prototypes: one for every class, zeros if the server has none for it."""
    return Traffic(prototypes_down=4 * numbers * classes)


def both_ways(models: Models, late: Collection[int] = ()) -> dict[int, Traffic]:
    """Return the traffic of a round in which each client of the cohort downloads and uploads one model.

    The model has the size of the client's model in `models`. A client in `late` downloads two: before the round it was
    also sent the model from which it trains for the first time.
    """
    sizes = {n: wire_bytes(params) for n, params in models.items()}
    return {n: Traffic(parameters_up=size, parameters_down=size * (1 + (n in late))) for n, size in sizes.items()}
