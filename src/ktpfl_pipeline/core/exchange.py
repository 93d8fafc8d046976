"""The exchange that methods on soft predictions share: train, predict on the public batch, mix, distil."""

from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.params import Models, select


@dataclass(frozen=True, eq=False)
class Upload:
    """What the cohort's clients have after local training.

    Attributes:
        models: their trained models.
        batch: (B,) indices of the round's public samples D_r.
        logits: (|S|, B, K) their predictions there, which is all that leaves them.
    """

    models: Models
    batch: Tensor
    logits: Tensor


def train_and_predict(fed: Federation, models: Models, cohort: list[int], t: int) -> Upload:
    """Train the cohort's models locally and predict the round's public batch with each."""
    batch = fed.public_batch(t)
    trained = fed.train(select(models, cohort), t)
    return Upload(trained, batch, fed.logits(trained, batch))


def distill(fed: Federation, upload: Upload, teachers: Tensor, t: int) -> Models:
    """Distil each client's teacher, (|S|, B, K), into its model, on the batch the predictions were made for."""
    return fed.distill(upload.models, teachers, upload.batch, t)


def report(fed: Federation, upload: Upload, coefficients: Tensor | None = None) -> RoundReport:
    """Report the round: one prediction of B·K float32 up and one down per client, and the public batch down."""
    predictions = 4 * fed.public_batch_size * fed.classes
    traffic = Traffic(knowledge_up=predictions, knowledge_down=predictions, public_down=fed.public_bytes())
    return RoundReport(upload.models, dict.fromkeys(upload.models, traffic), coefficients)
