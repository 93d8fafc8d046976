"""False predictions that malicious clients upload; `settings.Adversaries` sets how many clients are malicious.

Malicious clients train, learn from their teachers and are evaluated as others are; only their uploads are false. Each
kind is the counterpart, for predictions, of a known attack: `random` of the Gaussian attack (Blanchard et al., NeurIPS
2017), `reversed` of label flipping y → K - 1 - y (Fang et al., USENIX Security 2020), and `scaled` of sign flipping
with a larger size (Li et al., RSA, AAAI 2019).
"""

import torch
from torch import Tensor

from ktpfl_pipeline.core.transfer import sent

FACTOR = -10.0
"""The factor of ``scaled``. The least likely class of a sample gets nearly all of the probability."""


def false_predictions(kind: str, logits: Tensor, stream: torch.Generator) -> Tensor:
    """Return what a malicious client uploads instead of its `logits`, (B, K); `kind` is `Adversaries.kind`.

    Noise is drawn from `stream`, on the CPU, so that it is the same for any device.
    """
    if kind == "reversed":
        return logits.flip(-1)
    if kind == "scaled":
        return FACTOR * logits
    noise = sent(torch.randn(logits.shape, generator=stream), logits.device).to(logits.dtype)
    return logits.mean() + logits.std() * noise
