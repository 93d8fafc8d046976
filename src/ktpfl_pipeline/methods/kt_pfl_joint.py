"""KT-pFL (joint): predictions and parameters in one round; our extension of KT-pFL, from no paper.

A round is KT-pFL's, with confidence weighting of the teachers. In addition, clients of one architecture share
parameters as in `kt_pfl_params`, by a second learned matrix that is zero across architectures. The mixed models teach
each other too. Each client steps from KT-pFL's model toward the mixed one as far as validation samples support it
(`methods/shared/stepping.py`). docs/kt_pfl_variants.md derives it and states what leaves a client;
docs/results/joint.md has the ablation. Symbols in addition to those of `kt_pfl`:

    p_n   teachers   Σ_m c_nm κ_m s_m / Σ_m c_nm κ_m, sample by sample, κ_m the confidence of s_m to the power γ
    h_n   taught     w_n after distillation of p_n: KT-pFL's model
    d_nm  mixing     how much of m's parameters n takes; 0 across architectures
    v_n   mixed      Σ_m d_nm w_m, n's model after parameters were mixed
    u_n   beside     v_n after distillation of its own teacher, made as p_n of predictions of all v_m
    μ_n              how far n goes from h_n to u_n
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.objectives import SquaredDistance
from ktpfl_pipeline.core.matrix.teachers import mix_confident
from ktpfl_pipeline.core.method import RoundReport
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.weights import Models, Params, gram, mix, select
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState
from ktpfl_pipeline.methods.kt_pfl_params import mean_distance
from ktpfl_pipeline.methods.shared import stepping


@dataclass(frozen=True, eq=False)
class KTpFLJointState(KTpFLState):
    """What crosses rounds in addition to c and the models of clients that took part.

    Attributes:
        mixing: d, (N, N) float64.
        tally: (N, len(stepping.LENGTHS), 2), validation samples that each step length has won and lost so far.
    """

    mixing: Tensor
    tally: Tensor


@dataclass(frozen=True)
class KTpFLJoint(KTpFL):
    """KT-pFL (joint): predictions across all architectures, and parameters as far as validation supports them.

    Attributes:
        confidence: γ, the extra weight of clients with confident predictions; 0 is off, and safer where public samples
            come from another domain than private ones (docs/results/joint.md).
        rho_parameters: ρ of the mixing matrix d, as `rho` for c.
        pooling: weight of all clients' validation samples relative to a client's own.
    """

    title = "KT-pFL (joint)"
    exchanges = frozenset({"predictions", "parameters", "coefficients"})
    private_data = "validation accuracy"
    fits_validation = True
    paper_name = None

    confidence: Annotated[float, Ge(0)] = 2.0
    rho_parameters: Annotated[float, Ge(0)] = 2.0
    pooling: Annotated[float, Ge(0)] = 0.25

    def init(self, fed: Federation) -> KTpFLJointState:
        """Start from the initial models, equal c, and d equal within each architecture."""
        rows = fed.positions([client.id for client in fed.clients])
        mixing = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=fed.device)
        for group in fed.of_one_architecture(fed.by_id).values():
            at = fed.positions(group)
            mixing[at[:, None], at] = 1.0 / len(group)
        return KTpFLJointState({}, super().init(fed).coefficients, mixing, stepping.none_yet(fed))

    def round(
        self, state: KTpFLState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[KTpFLJointState, RoundReport]:
        """Run one round: KT-pFL with confidence weighting, mixing of parameters, a second exchange, a step."""
        assert isinstance(state, KTpFLJointState)
        before, seen = self.personal(state, cohort, fed), fed.of_one_architecture(state.models)
        late = [n for n in cohort if n not in state.models and fed.by_id[n].architecture in seen]
        # 1. A round of KT-pFL with confidence weighting: w_n, trained, becomes h_n.
        upload = exchange.train_and_predict(fed, before, cohort, t)
        c, coefficients = self.learn(state.coefficients, fed.positions(cohort), self.objective(upload, fed))
        teachers = mix_confident(c, upload.soft, self.confidence)  # (|S|, B, K)
        taught, report = exchange.teach(fed, state, upload, teachers, t)
        # 2. Each client uploads w_n; the server moves d down the gradient of its objective, and sends v_n = Σ d_nm w_m.
        mixed, mixing = self.mix(state.mixing, upload.models, fed)
        # 3. The same exchange with v_n, by the same c: it becomes u_n.
        with fed.client_states.apart("mixed"):
            second = exchange.predict(fed, before, mixed, t)
            beside, there = exchange.teach(fed, state, second, mix_confident(c, second.soft, self.confidence), t)
        # 4. Each client goes from h_n to h_n + μ_n (u_n - h_n).
        models, tally = self.follow(select(taught.models, cohort), select(beside.models, cohort), state.tally, fed)
        state = KTpFLJointState({**state.models, **models}, coefficients, mixing, tally)
        choice = Traffic(coefficients_up=stepping.TALLY_BYTES, coefficients_down=4)
        traffic = {  # two exchanges on one public batch, models, and the step
            n: report.traffic[n] + replace(there.traffic[n], public_down=0) + models_sent + choice
            for n, models_sent in exchange.both_ways(upload.models, late).items()
        }
        return state, RoundReport(upload.models, traffic, coefficients)

    def follow(self, own: Models, taught: Models, tally: Tensor, fed: Federation) -> tuple[Models, Tensor]:
        """Return h_n + μ_n (u_n - h_n) with μ_n chosen by validation, and the new tally; see `stepping`."""
        return stepping.step(own, taught, tally, self.pooling, fed)

    def mix(self, mixing: Tensor, trained: Models, fed: Federation) -> tuple[Models, Tensor]:
        """Return v_n = Σ_m d_nm w_m and d after its update, by the objective of `kt_pfl_params` in each architecture.

        `mixing` is d of the round before, (N, N), and `trained` are the cohort's w_n.
        """
        mixed = dict(trained)
        matrix = replace(self, rho=self.rho_parameters)
        for architecture, group in fed.of_one_architecture(trained).items():
            models = [trained[n] for n in group]
            products = gram(models, fed.trained_names_of(architecture))
            weights = self.row_weights(fed.data_weights(group))
            objective = SquaredDistance(products / mean_distance(products), weights, self.rho_parameters)
            d, mixing = matrix.learn(mixing, fed.positions(group), objective)
            mixed |= dict(zip(group, mix(models, d), strict=True))
        return mixed, mixing

    def sent(self, state: KTpFLState, clients: list[int], fed: Federation) -> Models:
        """Return the mixture of the server's models by each client's row of d, or the initial model."""
        assert isinstance(state, KTpFLJointState)
        there, found = fed.of_one_architecture(state.models), dict(super().sent(state, clients, fed))
        for architecture, asked in fed.of_one_architecture(clients).items():
            if seen := there.get(architecture, []):
                rows = state.mixing[fed.positions(asked)][:, fed.positions(seen)]
                mixed = mix([state.models[n] for n in seen], rows / rows.sum(dim=1, keepdim=True))
                found |= dict(zip(asked, mixed, strict=True))
        return found

    def sent_first(self, there: Models, newcomers: Sequence[int], fed: Federation) -> Models:
        """Return the average model of each new client's architecture, if other clients have it."""
        groups, found = fed.of_one_architecture(there), dict[int, Params]()
        for architecture, asked in fed.of_one_architecture(newcomers).items():
            if group := groups.get(architecture):
                found |= dict.fromkeys(asked, fed.average(select(there, group)))
        return found
