"""FedRep: all clients share the body of a model, and each has its own head.

Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated Learning, ICML
2021, Algorithm 1, https://arxiv.org/abs/2102.07078. The head is the layer that computes the logits.
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from ktpfl_pipeline.core.client.rules import Masked
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods.fedper import FedPer
from ktpfl_pipeline.methods.shared.parts import head_names, mask


@dataclass(frozen=True)
class FedRep(FedPer):
    """FedRep (Collins et al., 2021): features are shared, the head is personal.

    Attributes:
        body_epochs: the epochs per round in which the body is trained, after the head; 1 in the paper. The head is
            trained for the remaining epochs of E, and for at least one epoch unless E is 0.
    """

    title = "FedRep"
    own_step = True
    needs_head = "layer"

    body_epochs: Annotated[int, Ge(0)] = 1

    def train(self, models: Models, t: int, fed: Federation) -> Models:
        """Return the models after training the head with the body fixed, and then the body with the new head fixed."""
        head, epochs = mask(fed, head_names(fed)), {n: fed.training_of(n).epochs for n in models}
        least = {n: min(1, epochs[n]) for n in models}  # no epochs if E is 0
        body = {n: min(self.body_epochs, max(least[n], epochs[n] - 1)) for n in models}
        rest = {n: max(least[n], epochs[n] - body[n]) for n in models}
        for part, moves, passes in (("head", head, rest), ("body", 1.0 - head, body)):
            models, _ = fed.train_by(Masked(), models, t, dict.fromkeys(models, (moves,)), passes, part)
        return models
