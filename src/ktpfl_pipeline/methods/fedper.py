"""FedPer: all clients share the body of a model, and each has its own head; both are trained together.

Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers, 2019, Algorithms 1 and 2,
https://arxiv.org/abs/1912.00818. The only personalization layer is the head.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.methods.shared.parts import PartlyShared, head_names


@dataclass(frozen=True)
class FedPer(PartlyShared):
    """FedPer (Arivazhagan et al., 2019): the last layer is personal and is not shared."""

    title = "FedPer"
    covered = True
    needs_head = "layer"

    def own_names(self, fed: Federation) -> Iterable[str]:
        """Return the names of the head's tensors, which stay on the client."""
        return head_names(fed)
