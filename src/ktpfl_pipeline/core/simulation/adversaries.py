"""Clients that upload something else than what their models predict: a setting of the simulation.

They train, learn from their teachers and are evaluated as others are; what they tell the others alone is false. It is
the prediction's counterpart of attacks on uploaded models: `random` of the Gaussian attack (Blanchard et al., NeurIPS
2017), `flipped` of label flipping y → K - 1 - y (Fang et al., USENIX Security 2020), `scaled` of sign flipping with a
larger size (Li et al., RSA, AAAI 2019).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.validation import Part

FACTOR = -10.0
"""Of ``scaled``: nearly all of the mass goes to the class that the model thinks the least of."""


@dataclass(frozen=True)
class Adversaries:
    """Malicious (Byzantine) clients, which upload false predictions; report means are over the other clients.

    Attributes:
        share: the share of malicious clients; there are round(share · N).
        kind: what they upload: ``random``, normal noise with the mean and standard deviation of their logits;
            ``flipped``, their logits with the classes in reverse order; ``scaled``, their logits times -10.
    """

    share: Part = 0.0
    kind: Literal["random", "flipped", "scaled"] = "flipped"

    def uploaded(self, logits: Tensor, stream: torch.Generator) -> Tensor:
        """Return what an adversary uploads in the place of its logits, (B, K); noise is drawn from `stream`."""
        if self.kind == "flipped":
            return logits.flip(-1)
        if self.kind == "scaled":
            return FACTOR * logits
        noise = torch.randn(logits.shape, generator=stream)  # drawn on the CPU, the same for any device
        noise = sent(noise, logits.device).to(logits.dtype)
        return logits.mean() + logits.std() * noise
