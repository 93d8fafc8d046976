"""FedBABU: one global model whose head keeps its initial values; only the body is trained and averaged.

Oh, Kim, Yun: FedBABU: Towards Enhanced Representation for Federated Image Classification, ICLR 2022, Algorithm 1,
https://arxiv.org/abs/2106.06042. The head is the layer that computes the logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.client.rules import Masked
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, given
from ktpfl_pipeline.core.method import RoundReport, Shared, SharedState
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.methods.shared.parts import head_names, mask


@dataclass(frozen=True)
class FedBABU(Shared):
    """FedBABU (Oh et al., 2022): a body trained for a fixed head is a better start for fine-tuning.

    The evaluated model is the global model. The paper evaluates a fine-tuned copy; here reports show the accuracy after
    fine-tuning for every method.
    """

    title = "FedBABU"
    own_step = True
    needs_head = "layer"

    def round(self, state: SharedState, cohort: list[int], t: int, fed: Federation) -> tuple[SharedState, RoundReport]:
        """Send the body, train it with the shared fixed head, and average it by numbers of samples."""
        head = head_names(fed)
        moves = 1.0 - mask(fed, head)
        trained, _ = fed.train_by(Masked(), dict.fromkeys(cohort, state.model), t, dict.fromkeys(cohort, (moves,)))
        bodies: Models = {n: {name: trained[n][name] for name in state.model if name not in head} for n in cohort}
        model = {**state.model, **fed.average(bodies)}
        return SharedState(model), RoundReport(trained, exchange.both_ways(bodies))

    def join(self, state: SharedState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Send new clients the body. They draw the same fixed head themselves."""
        head = head_names(fed)
        body = {name: tensor for name, tensor in state.model.items() if name not in head}
        return given(dict.fromkeys(newcomers, state.model), dict.fromkeys(newcomers, body))
