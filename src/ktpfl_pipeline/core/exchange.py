"""What travels. The exchange that methods on soft predictions share: train, predict on the public batch, mix, distil.

A round of such a method is `train_and_predict`, its own rule for the teachers, and `teach`. Where models travel,
`both_ways` counts their bytes.
"""

from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import among
from ktpfl_pipeline.core.matrix.teachers import mix_teachers, soft_predictions
from ktpfl_pipeline.core.method import PersonalRound, PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, select, wire_bytes


@dataclass(frozen=True, eq=False)
class Upload:
    """What the cohort's clients have after local training.

    Attributes:
        models: their trained models.
        batch: (B,) indices of the round's public samples D_r.
        logits: (|S|, B, K) their predictions z there, which is all that leaves them.
        soft: (|S|, B, K) float64, s = softmax(z / T).
    """

    models: Models
    batch: Tensor
    logits: Tensor
    soft: Tensor


def train_and_predict(fed: Federation, models: Models, cohort: list[int], t: int) -> Upload:
    """Train the cohort's models locally and predict the round's public batch with each."""
    batch = fed.public_batch(t)
    trained = fed.train(select(models, cohort), t)
    logits = fed.logits(trained, batch, t)
    return Upload(trained, batch, logits, soft_predictions(logits, fed.distillation.temperature))


def teach(fed: Federation, state: PersonalState, upload: Upload, teachers: Tensor, t: int) -> PersonalRound:
    """Distil the teachers into the cohort's models, and end the round.

    One prediction of B·K float32 goes up and one comes down per client, and the public batch comes down.

    Args:
        fed: the federation.
        state: of the round before.
        upload: what the cohort has.
        teachers: (|S|, B, K) one for each client, or (B, K) one for all: probabilities.
        t: the round.
    """
    distilled = fed.distill(upload.models, teachers.expand_as(upload.soft), upload.batch, t)
    predictions = 4 * fed.public_batch_size * fed.classes
    traffic = Traffic(predictions_up=predictions, predictions_down=predictions, public_down=fed.public_bytes())
    report = RoundReport(upload.models, dict.fromkeys(upload.models, traffic))
    return PersonalState({**state.models, **distilled}), report


def teach_mixtures(fed: Federation, state: PersonalState, upload: Upload, weights: Tensor, t: int) -> PersonalRound:
    """Teach each client a mixture of the cohort's soft predictions, and report the weights, (|S|, |S|) row = student.

    A client outside the cohort learned from nobody but itself.
    """
    after, report = teach(fed, state, upload, mix_teachers(weights, upload.soft), t)
    shown = among(weights, fed.positions(list(upload.models)), len(fed.clients))
    return after, RoundReport(report.after_local, report.traffic, shown)


def both_ways(models: Models) -> dict[int, Traffic]:
    """Return the traffic of a round in which each client downloads and uploads one model like its own."""
    sizes = {n: wire_bytes(params) for n, params in models.items()}
    return {n: Traffic(parameters_up=size, parameters_down=size) for n, size in sizes.items()}
