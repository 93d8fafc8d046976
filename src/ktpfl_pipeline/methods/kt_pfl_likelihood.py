"""KT-pFL (likelihood): each client fits its coefficients to the labels of its validation samples.

This method is ours; docs/kt_pfl_variants.md derives it. The objective is the loss of a mixture of models on a client's
own data, which Theorem 1 of the KT-pFL paper is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined
from ktpfl_pipeline.core.matrix.objectives import Likelihood, Objective
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.method import Method, RoundReport
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models, wire_bytes
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState


@dataclass(frozen=True)
class KTpFLLikelihood(KTpFL):
    """KT-pFL (likelihood): each client's row of coefficients is fitted to the labels of its validation samples.

    A client computes its row locally, for which it downloads the models of all other clients of the cohort. The traffic
    includes these models. All other steps are the same as in KT-pFL.

    Attributes:
        temperature: T_c, the temperature of the predictions on validation samples.
    """

    title = "KT-pFL (likelihood)"
    exchanges = frozenset({"predictions", "parameters", "coefficients"})
    fits_validation = needs_validation = True
    paper_name = None

    update: Literal["eg", "pgd", "softmax", "exact", "frozen"] = "eg"

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Run one round of KT-pFL, and add the bytes of the sent models and coefficients to its traffic."""
        after, report = super().round(state, cohort, t, fed)
        sizes = {n: wire_bytes(params) for n, params in report.after_local.items()}
        others = {n: sum(sizes.values()) - size for n, size in sizes.items()}
        traffic = {
            n: replace(own, coefficients_up=4 * len(sizes), parameters_up=sizes[n], parameters_down=others[n])
            for n, own in report.traffic.items()
        }
        return after, replace(report, traffic=traffic)

    def join(self, state: KTpFLState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Teach new clients the unweighted average of soft predictions; a learned row would need all models."""
        return Method.join(self, state, there, newcomers, fed)

    def objective(self, upload: exchange.Upload, fed: Federation) -> Objective:
        """Return the objective of the cohort's c: λ Σ_n a_n NLL_n + ρ ‖c - 1/N‖², on the clients' validation labels.

        NLL_n is the mean negative log-likelihood of client n's mixture of models.
        """
        probabilities, samples = true_label_probabilities(upload.models, fed, self.temperature)
        return Likelihood(probabilities, samples, self.row_weights(fed.data_weights(list(upload.models))), self.rho)


def true_label_probabilities(models: Models, fed: Federation, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the probability that each model gives to the true label of each client's validation samples.

    Returns:
        The probabilities, (|S|, V, |S|) float64, by client, sample and model; V is the largest number of samples of a
        client, and the values of missing samples are one. Also each client's number of samples, (|S|,) float64.
    """
    found = []
    for n, logits in fed.cross_logits(models, "validation").items():  # (V_n, |S|, K)
        labels = sent(fed.by_id[n].validation.labels, logits.device)[:, None, None].expand(-1, len(models), 1)
        found.append(soft_predictions(logits, temperature).gather(2, labels).squeeze(2))  # (V_n, |S|)
    samples = torch.tensor([len(own) for own in found], dtype=torch.float64)
    return pad_sequence(found, batch_first=True, padding_value=1.0), sent(samples, fed.device)
