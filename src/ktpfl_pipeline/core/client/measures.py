"""What predictions are worth beside accuracy and loss: over classes that are not equally frequent, and as confidences.

Over the classes that a client's split has: balanced accuracy is the mean of their recalls, macro F1 the mean of their
F1 scores, 2 TP / (2 TP + FP + FN). Expected calibration error: Guo, Pleiss, Sun, Weinberger: On Calibration of Modern
Neural Networks, ICML 2017, Eq. (3), https://arxiv.org/abs/1706.04599.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 15
"""Of confidence, equally wide, each with its upper end: those of Guo et al."""


def measures(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Return balanced accuracy, macro F1 and expected calibration error, (..., 3) float64 in 0..1.

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
    confidence = logits.double().softmax(dim=-1).amax(dim=-1)
    gap = ((predicted == labels).double() - confidence) * counts
    bins = F.one_hot((confidence * BINS).ceil().long().clamp(1, BINS) - 1, BINS)
    calibration = (bins * gap[..., None]).sum(dim=-2).abs().sum(dim=-1) / counts.sum(dim=-1)
    return torch.stack([recall.sum(dim=-1) / own, f1.sum(dim=-1) / own, calibration], dim=-1)
