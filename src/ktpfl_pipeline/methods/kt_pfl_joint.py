"""KT-pFL (joint): a round of KT-pFL that starts from mixtures of models of one architecture; ours, from no paper.

Clients of one architecture share their models as far as they have the same classes. The server estimates that from
predictions: the mean of a client's predictions on public samples is close to its distribution of labels, even where
the public samples are of another kind. A client starts its local training from the mixture, and uses what training
made of it. docs/kt_pfl_variants.md derives the rule and states what leaves a client; docs/results/converged.md
compares it with other methods. Further symbols, besides those of `kt_pfl`:

    π_n   state.labels    client n's mean soft prediction over the round's public samples, an estimate of its labels
    o_nm  overlap         Σ_k min(π_nk, π_mk): which share of their labels clients n and m have in common
    h_m   state.taught    client m's model after distillation, which the server mixes
    d_nm  weights         the weight of h_m in client n's mixture, proportional to D_m o_nm²
    v_n   start           the mixture Σ_m d_nm h_m, from which client n trains
    w_n   upload.models   v_n after local training
    u_n   state.models    the model that client n uses: the running mean of what lies between v_n and w_n
    z_n   state.sums      the sum of the weights of u_n's rounds: 1 for the newest, β for the one before, β² before that
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import torch
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import mix_confident, soft_predictions
from ktpfl_pipeline.core.method import PersonalState, RoundReport
from ktpfl_pipeline.core.transfer import fetched
from ktpfl_pipeline.core.weights import Models, Params, average, mix, select
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState

SHARPNESS = 2
"""The power of the overlap in the weights of a mixture."""


@dataclass(frozen=True, eq=False)
class KTpFLJointState(KTpFLState):
    """The state between rounds, in addition to c and the models u_n of clients that took part.

    Attributes:
        taught: h_m, the last model that each client uploaded.
        labels: π, (N, K) float64, zeros where a client never took part.
        sums: z_n of clients that took part.
    """

    taught: Models
    labels: Tensor
    sums: Mapping[int, float]


@dataclass(frozen=True)
class KTpFLJoint(KTpFL):
    """KT-pFL (joint): each round of KT-pFL starts from mixtures of models of one architecture.

    Attributes:
        confidence: γ, the extra weight of clients with confident predictions; 0 is off, and safer where public samples
            come from another domain than private ones (benchmarks/results/2026-11-24-joint.md).
        start_share: α, how far the model that a client uses lies from its trained model w_n toward its start v_n.
        memory: β, the weight of a round in that model relative to the next round; 0 keeps only the newest.
    """

    title = "KT-pFL (joint)"
    exchanges = frozenset({"predictions", "parameters"})
    paper_name = None

    confidence: Annotated[float, Ge(0)] = 0.0
    start_share: Annotated[float, Interval(ge=0, le=1)] = 0.25
    memory: Annotated[float, Interval(ge=0, lt=1)] = 0.75

    def init(self, fed: Federation) -> KTpFLJointState:
        """Start from the initial models and equal c."""
        labels = torch.zeros(len(fed.clients), fed.classes, dtype=torch.float64, device=fed.device)
        return KTpFLJointState({}, super().init(fed).coefficients, {}, labels, {})

    def round(
        self, state: KTpFLState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[KTpFLJointState, RoundReport]:
        """Run one communication round."""
        assert isinstance(state, KTpFLJointState)
        # 1. The server sends each client its start v_n, from which it trains, w_n, and predicts the public batch.
        starts, own = self.starts(state, cohort, fed)
        metrics = {"own_weight": fmean(fetched(own))} if own else {}
        upload = exchange.train_and_predict(fed, starts, cohort, t)
        # 2. KT-pFL: the server learns c and mixes teachers; w_n learns from its teacher, becomes h_n, and is uploaded.
        c, coefficients = self.learn(state.coefficients, fed.rows(cohort), self.objective(upload, fed))
        teachers = mix_confident(c, upload.soft, self.confidence)  # (|S|, B, K)
        taught, report = exchange.teach(fed, PersonalState(state.taught), upload, teachers, t)
        # 3. The server estimates what labels each client has.
        labels = state.labels.clone()
        if len(upload.batch):
            labels[fed.rows(cohort)] = soft_predictions(upload.logits, self.temperature).mean(dim=1)
        # 4. Each client averages: u_n ← u_n + (w_n + α (v_n - w_n) - u_n) / z_n.
        models = {n: self.averaged(state, n, starts[n], upload.models[n]) for n in cohort}
        sums = {**state.sums, **{n: self.sum_with_next(state, n) for n in cohort}}
        state = KTpFLJointState({**state.models, **models}, coefficients, taught.models, labels, sums)
        sizes = exchange.both_ways(upload.models)
        traffic = {n: report.traffic[n] + sizes[n] for n in cohort}
        return state, RoundReport(upload.models, traffic, coefficients, metrics=metrics)

    def sum_with_next(self, state: KTpFLJointState, n: int) -> float:
        """Return z_n after one more round: z_n ← 1 + β z_n."""
        return 1.0 + self.memory * state.sums.get(n, 0.0)

    def averaged(self, state: KTpFLJointState, n: int, start: Params, trained: Params) -> Params:
        """Return u_n after one more round, from v_n and w_n; after a client's first round it is w_n."""
        if n not in state.models:
            return trained
        new, share = 1.0 / self.sum_with_next(state, n), self.start_share
        weights = torch.tensor([1.0 - new, new * (1.0 - share), new * share], dtype=torch.float64)
        return average([state.models[n], trained, start], weights)

    def starts(self, state: KTpFLJointState, clients: Iterable[int], fed: Federation) -> tuple[Models, list[Tensor]]:
        """Return v_n = Σ_m d_nm h_m, over the clients of n's architecture whose model the server has.

        If the server has no such model, v_n is the initial model. Also return d_nn, () each, the weight of a client's
        own model in its start, of each client whose model the server has.
        """
        asked, own = list(clients), list[Tensor]()
        found, groups = dict(select(fed.initial_models(), asked)), fed.of_one_architecture(state.taught)
        for architecture, students in fed.of_one_architecture(asked).items():
            if known := groups.get(architecture):
                common = overlap(state.labels[fed.rows(students)], state.labels[fed.rows(known)])
                weights = self.weights(common, fed.data_weights(known))  # d, (r, n)
                found |= zip(students, mix([state.taught[m] for m in known], weights), strict=True)
                own += [row[known.index(n)] for n, row in zip(students, weights, strict=True) if n in known]
        return found, own

    def weights(self, common: Tensor, shares: Tensor) -> Tensor:
        """Return d, rows that sum to one, from overlaps of labels, (r, n), and shares of the data, (n,).

        A row without any overlap, as of a client that never took part, gets the shares of the data.
        """
        weights = shares * common**SHARPNESS
        sums = weights.sum(dim=1, keepdim=True)
        return torch.where(sums > 0, weights / sums.clamp_min(torch.finfo(sums.dtype).tiny), shares)

    def adapt(self, state: KTpFLState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return u_n after local training from v_n, as in a round; a client that never took part trains its model."""
        assert isinstance(state, KTpFLJointState)
        if not epochs:
            return models
        starts, _ = self.starts(state, [n for n in models if n in state.models], fed)
        trained = fed.fine_tune({**models, **starts}, epochs)
        return {n: self.averaged(state, n, starts[n], w) if n in starts else w for n, w in trained.items()}

    def sent(self, state: KTpFLState, clients: list[int], fed: Federation) -> Models:
        """Return the start that each client would be sent."""
        assert isinstance(state, KTpFLJointState)
        return self.starts(state, clients, fed)[0]

    def sent_first(self, there: Models, newcomers: Sequence[int], fed: Federation) -> Models:
        """Return the average model of each new client's architecture, if a client there has one."""
        groups, found = fed.of_one_architecture(there), dict[int, Params]()
        for architecture, asked in fed.of_one_architecture(newcomers).items():
            if group := groups.get(architecture):
                found |= dict.fromkeys(asked, fed.average(select(there, group)))
        return found


def overlap(one: Tensor, other: Tensor) -> Tensor:
    """Return o_nm = Σ_k min(one[n, k], other[m, k]) of two sets of distributions, (r, K) and (n, K), as (r, n)."""
    return torch.minimum(one[:, None], other[None]).sum(dim=2)
