"""KT-pFL with soft predictions as knowledge.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021,
Algorithm 1, https://arxiv.org/abs/2111.02862
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ktpfl_pipeline.core import coefficients, exchange
from ktpfl_pipeline.core.errors import InputError, check_choice
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.learned_matrix import LearnedMatrix
from ktpfl_pipeline.core.method import PersonalState, RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, wire_bytes


@dataclass(frozen=True, eq=False)
class KTpFLState(PersonalState):
    """What crosses rounds: each client's model, and the knowledge coefficient matrix c, (N, N) float64."""

    knowledge: Tensor


@dataclass(frozen=True)
class KTpFL(LearnedMatrix):
    """Believes that each client should learn from a mixture of all clients' predictions whose weights are learned.

    Attributes:
        objective: what the matrix minimises. ``divergence``: of a client's teacher from its own prediction (Eq. 4),
            without labels. ``likelihood``: the negative log-likelihood of a client's mixture of models on its own
            validation images; for that it needs the other clients' models, and the bytes say so.
        temperature: T_c of the soft predictions in the matrix's objective.
    """

    objective: str = "divergence"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Refuse hyperparameters that mean nothing."""
        super().__post_init__()
        check_choice("kt_pfl.objective", self.objective, ("divergence", "likelihood"))
        if not 0 < self.temperature < math.inf:
            raise InputError(f"kt_pfl.temperature is {self.temperature}; it must be finite and above 0.")
        if self.update == "authors" and self.objective == "likelihood":
            raise InputError("kt_pfl.update is 'authors', which has its own objective; leave kt_pfl.objective out.")

    def init(self, fed: Federation) -> KTpFLState:
        """Start from the common initial models and equal coefficients 1/N."""
        return KTpFLState(fed.initial_models(), coefficients.uniform(len(fed.clients), fed.device))

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Run one communication round (Algorithm 1)."""
        upload = exchange.train_and_predict(fed, state.models, cohort, t)  # steps 1 to 3
        rows = fed.positions(cohort)
        c, mass = coefficients.block(state.knowledge, rows)  # (|S|, |S|)
        updated = self.updated(self.minimised(upload, fed), c)
        mixing = updated if self.order == "coefficients_first" else c
        teachers = coefficients.teachers(mixing, upload.soft)  # p, (|S|, B, K)
        after, report = exchange.teach(fed, state, upload, teachers, t)  # steps 4 and 5, Eq. (6)
        knowledge = coefficients.write_block(state.knowledge, rows, updated, mass)  # step 6
        traffic = report.traffic if self.objective == "divergence" else with_models(report.traffic, upload.models)
        return KTpFLState(after.models, knowledge), RoundReport(upload.models, traffic, knowledge)

    def minimised(self, upload: exchange.Upload, fed: Federation) -> coefficients.Objective:
        """Return what the cohort's block of the matrix minimises, given this round's models and predictions."""
        soft = coefficients.soft_predictions(upload.logits, self.temperature)
        if self.update == "authors":
            return coefficients.SquaredError(soft, self.rho)
        weights = self.row_weights(list(upload.models), fed)
        if self.objective == "divergence":
            return coefficients.Divergence(soft, weights, self.rho, fed.compute.server_memory * 2**20)  # Eqs. 2, 4
        probabilities, images = true_label_probabilities(upload.models, fed)
        return coefficients.Likelihood(probabilities, images, weights, self.rho)


def true_label_probabilities(models: Models, fed: Federation) -> tuple[Tensor, Tensor]:
    """Return what each model gives to the true labels of each client's validation images.

    Returns:
        (|S|, V, |S|) float64, client × image × model, ones where a client has fewer than V images; and their numbers,
        (|S|,).
    """
    if any(len(fed.by_id[n].validation) == 0 for n in models):
        raise InputError(
            "kt_pfl.objective is 'likelihood', which needs validation images, and a client has none; raise "
            "partition.validation_share, or take objective=divergence."
        )
    found = []
    for n, logits in fed.cross_logits(models, "validation").items():  # (V_n, |S|, K)
        labels = fed.by_id[n].validation.labels.to(logits.device)
        soft = coefficients.soft_predictions(logits)
        found.append(soft[torch.arange(len(labels)), :, labels])  # (V_n, |S|)
    images = torch.tensor([float(len(own)) for own in found], dtype=torch.float64, device=fed.device)
    return pad_sequence(found, batch_first=True, padding_value=1.0), images


def with_models(traffic: dict[int, Traffic], models: Models) -> dict[int, Traffic]:
    """Return the traffic with each client's own model up, all others' down, and its N new coefficients up."""
    sizes = {n: wire_bytes(params) for n, params in models.items()}
    total = sum(sizes.values())
    return {
        n: replace(
            own,
            coefficients_up=4 * len(models),
            parameters_up=sizes[n],
            parameters_down=total - sizes[n],
        )
        for n, own in traffic.items()
    }
