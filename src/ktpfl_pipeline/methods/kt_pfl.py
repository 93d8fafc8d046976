"""KT-pFL: each client learns from a mixture of all clients' soft predictions, whose weights are learned.

Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS 2021,
Algorithm 1, https://arxiv.org/abs/2111.02862. docs/kt_pfl.md uses the same step numbers, derives the gradient and
states our choices. The code uses these symbols:

    S     cohort          the clients of the round: client n is a student, client m is a teacher
    w_n   state.models    the model of client n
    D_r   upload.batch    the public samples of the round, as indices
    z_n   upload.logits   the logits of client n on D_r
    s_n   upload.soft     the soft predictions of client n on D_r, softmax(z_n / T)
    p_n   teachers        the personalized soft prediction of client n, which is its teacher
    c_nm  coefficients    the weight of teacher m for student n: knowledge coefficient matrix, row = student

The paper writes c_mn for c_nm (Eq. 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.errors import NotCoveredError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.joining import Joined, taught
from ktpfl_pipeline.core.matrix.blocks import by_overlap, overlap, random_rows, uniform
from ktpfl_pipeline.core.matrix.learned import LearnedMatrix
from ktpfl_pipeline.core.matrix.objectives import Divergence, Objective, SquaredError
from ktpfl_pipeline.core.matrix.teachers import log_soft_predictions, mix_teachers, soft_predictions
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport
from ktpfl_pipeline.core.transfer import sent
from ktpfl_pipeline.core.weights import Models


@dataclass(frozen=True, eq=False)
class KTpFLState(PersonalState):
    """The state between rounds: each client's model w_n, and the knowledge coefficient matrix c, (N, N) float64."""

    coefficients: Tensor


@dataclass(frozen=True)
class KTpFL(LearnedMatrix, Personal):
    """KT-pFL (Zhang et al., 2021): the server learns from predictions how much each client learns from every other.

    Attributes:
        temperature: T_c, the temperature of the soft predictions in the objective of the matrix.
    """

    title = "KT-pFL"
    covered = True
    paper_name: ClassVar[str | None] = "KT-pFL"

    temperature: Annotated[float, Gt(0)] = 1.0

    def init(self, fed: Federation) -> KTpFLState:
        """Start from the initial models and the first matrix, 1/N unless `update` names another."""
        return KTpFLState(fed.initial_models(), first_matrix(self.update, fed, list(fed.by_id)))

    def round(self, state: KTpFLState, cohort: list[int], t: int, fed: Federation) -> tuple[KTpFLState, RoundReport]:
        """Run one communication round of Algorithm 1.

        Step 6 needs only the uploads of step 3. The code runs step 6 before step 4, because `learn` returns the
        coefficients for step 4 together with the updated matrix. Step 4 uses the coefficients of the previous round, as
        in the paper. With ``order: coefficients_first`` step 4 uses the updated coefficients.
        """
        # Steps 1 to 3. Draw D_r. Each client trains for E epochs, w_n ← w_n - η₁ ∇CE (Eq. 5), and uploads z_n.
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        # Step 6. The server updates the cohort's block of c in `steps` steps of size η₃ (Eq. 7).
        c, coefficients = self.learn(state.coefficients, fed.rows(cohort), self.objective(upload, fed))
        # Step 4. The server mixes a personalized teacher for each client, p_n = Σ_m c_nm s_m (Eq. 6).
        teachers = self.teachers(c, upload, fed)
        # Step 5. Each client distills its teacher for R epochs on D_r, w_n ← w_n - η₂ T² ∇KL(p_n ‖ s_n) (Eq. 6).
        after, report = exchange.teach(fed, state, upload, teachers, t)
        return KTpFLState(after.models, coefficients), replace(report, coefficients=coefficients)

    def teachers(self, c: Tensor, upload: exchange.Upload, fed: Federation) -> Tensor:
        """Return the personalized teachers p_n = Σ_m c_nm s_m, (|S|, B, K) (Eq. 6)."""
        return mix_teachers(c, upload.soft)

    def join(self, state: KTpFLState, there: Models, newcomers: Sequence[int], fed: Federation) -> Joined:
        """Learn a row of c for each new client, and distill the teacher that this row mixes.

        The row is learned in as many steps as the row of a client that took part in every round.
        """
        batch = fed.public_batch(fed.rounds)

        def teacher(n: int, logits: Tensor) -> Tensor:
            soft = soft_predictions(logits, fed.distillation.temperature)
            upload = exchange.Upload({**there, n: {}}, batch, logits, soft)
            objective, c = self.objective(upload, fed), first_matrix(self.update, fed, [*there, n])
            for _ in range(fed.rounds):
                _, c = self.learn(c, torch.arange(len(c), device=c.device), objective)
            return self.teachers(c, upload, fed)[-1]

        return taught(there, newcomers, fed, teacher, introduced=True, start=self.sent_first(there, newcomers, fed))

    def sent_first(self, there: Models, newcomers: Sequence[int], fed: Federation) -> Models:
        """Return the models that the server sends to new clients before distillation: none in KT-pFL."""
        return {}

    def objective(self, upload: exchange.Upload, fed: Federation) -> Objective:
        """Return the objective of the cohort's c: λ Σ_n a_n KL(p_n ‖ s_n) + ρ ‖c - 1/N‖² (Eqs. 2 and 4).

        The update ``authors`` has the squared error of the authors' released code as its objective.
        """
        if self.update == "authors":
            return SquaredError(soft_predictions(upload.logits, self.temperature), self.rho)
        weights = self.row_weights(fed.data_weights(list(upload.models)))
        log_soft = log_soft_predictions(upload.logits, self.temperature)
        return Divergence(log_soft, weights, self.rho, fed.compute.server_memory * 2**20)


def first_matrix(update: str, fed: Federation, clients: Sequence[int]) -> Tensor:
    """Return the matrix of these n clients before the first round, (n, n): 1/n, or what replaces a learned matrix.

    Raises InputError if the matrix needs true labels, but only the clients have them or training is private.
    """
    if update == "random":
        return random_rows(len(clients), fed.stream("random coefficients"), fed.device)
    if update == "label_overlap":
        if fed.private:
            raise NotCoveredError("reads the labels of training samples")
        counts = fed.class_counts(clients)
        shares = sent((counts / counts.sum(dim=1, keepdim=True)).double(), fed.device)  # (n, K)
        return by_overlap(overlap(shares, shares), fed.data_weights(list(clients)))
    return uniform(len(clients), fed.device)
