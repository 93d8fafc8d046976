"""The measures of one model on one client's samples.

A new measure is a field of `Evaluation` and an entry in the result of `measures`; its title and meaning are in
`reports/words.py`.

Balanced accuracy is the mean recall and macro F1 the mean F1 score, 2 TP / (2 TP + FP + FN), over the classes that a
client's split has. Expected calibration error: Guo, Pleiss, Sun, Weinberger: On Calibration of Modern
Neural Networks, ICML 2017, Eq. (3), https://arxiv.org/abs/1706.04599.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 15
"""The number of confidence bins, as in Guo et al. Bins have equal width, and each includes its upper end."""
UNDEFINED = ("auc",)
"""Measures that may be NaN: samples of a single class have no AUC."""


@dataclass(frozen=True)
class Evaluation:
    """One model on one client's split: accuracy in 0..1, mean cross-entropy in nats, and what `measures` returns."""

    accuracy: float
    loss: float
    balanced_accuracy: float
    macro_f1: float
    auc: float
    calibration_error: float

    @classmethod
    def of(cls, row: Sequence[float]) -> "Evaluation":
        """Return the evaluation of a row of numbers in the order of `METRICS`."""
        return cls(**dict(zip(METRICS, row, strict=True)))


METRICS = tuple(entry.name for entry in fields(Evaluation))
"""Names of an evaluation's numbers; only `packed` and `Evaluation.of` depend on their order."""
MEASURES = tuple(name for name in METRICS if name not in ("accuracy", "loss"))
"""Names of the numbers that `measures` returns."""


def measures(logits: Tensor, labels: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Return balanced accuracy, macro F1, AUC and expected calibration error by name, (...,) float64 each, in 0..1.

    Args:
        logits: (..., V, K).
        labels: (..., V) int64.
        counts: (..., V) bool, which samples count; at least one.
    """
    classes, predicted = logits.shape[-1], logits.argmax(dim=-1)
    true, said = (F.one_hot(each, classes).double() * counts[..., None] for each in (labels, predicted))
    support, hits = true.sum(dim=-2), (true * said).sum(dim=-2)  # (..., K)
    recall, f1 = hits / support.clamp_min(1.0), 2.0 * hits / (support + said.sum(dim=-2)).clamp_min(1.0)
    own = (support > 0).sum(dim=-1)
    probabilities = logits.double().softmax(dim=-1)
    confidence = probabilities.amax(dim=-1)
    gap = ((predicted == labels).double() - confidence) * counts
    bins = F.one_hot((confidence * BINS).ceil().long().clamp(1, BINS) - 1, BINS)
    return {
        "balanced_accuracy": recall.sum(dim=-1) / own,
        "macro_f1": f1.sum(dim=-1) / own,
        "auc": auc(probabilities, true, counts),
        "calibration_error": (bins * gap[..., None]).sum(dim=-2).abs().sum(dim=-1) / counts.sum(dim=-1),
    }


def auc(scores: Tensor, true: Tensor, counts: Tensor) -> Tensor:
    """Return the area under the ROC curve (AUC), one class against the rest, averaged over classes, (...,).

    A class counts if some samples belong to it and some do not; NaN if no class counts. AUC is the probability that a
    sample of the class scores higher than another sample, ties counting one half: by ranks, where equal scores share
    their mean rank (Hanley and McNeil 1982). `scores`, (..., V, K) float64, are probabilities; `true` is 1 for the
    class of each sample that `counts`, (..., V) bool, else 0.
    """
    scores = scores.masked_fill(~counts[..., None], torch.inf).transpose(-1, -2).contiguous()  # (..., K, V)
    ordered = scores.sort(dim=-1).values
    below, up_to = (torch.searchsorted(ordered, scores, right=right).double() for right in (False, True))
    ranks, positive = (below + up_to + 1.0) / 2.0, true.transpose(-1, -2)
    ours = positive.sum(dim=-1)  # (..., K)
    others = counts.sum(dim=-1, keepdim=True) - ours
    pairs = ours * others
    won = (ranks * positive).sum(dim=-1) - ours * (ours + 1.0) / 2.0
    by_class = torch.where(pairs > 0, won / pairs.clamp_min(1.0), 0.0)
    return by_class.sum(dim=-1) / (pairs > 0).sum(dim=-1)  # 0 / 0 is NaN


def packed(found: Mapping[str, Tensor]) -> Tensor:
    """Return the numbers of an evaluation, (...,) each, as one tensor, (..., M) float64, that `Evaluation.of` reads."""
    return torch.stack([found[name].double() for name in METRICS], dim=-1)
