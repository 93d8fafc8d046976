"""KT-pFL (joint): KT-pFL in which each client starts a round from a mixture of models of its architecture.

This method is ours. The server weights the models in a client's mixture by the overlap of label distributions, which
it estimates from predictions: a client's mean prediction on public samples is close to its label distribution, even if
the public samples come from another domain. The client trains from the mixture. It uses a running mean of its models
for inference. docs/kt_pfl_variants.md derives the rule and states which data leave a client. docs/results/converged.md
compares this method with others. Its symbols, in addition to those of `kt_pfl`:

    π_n   state.labels    client n's mean soft prediction on the public batch at T_c, an estimate of its label shares
    o_nm  overlap         Σ_k min(π_nk, π_mk), the estimated overlap of the label distributions of clients n and m
    h_m   state.taught    the model of client m after distillation, which client m uploads
    d_nm  weights         the weight of h_m in the mixture for client n, proportional to D_m o_nm²
    v_n   start           the mixture Σ_m d_nm h_m, from which client n trains
    w_n   upload.models   the model of client n after local training from v_n
    u_n   state.models    the model that client n uses: the running mean of w_n + α (v_n - w_n)
    b_n   state.sums      the sum of the round weights in u_n: 1 for the newest round, then β, β² and so on
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.blocks import by_overlap, overlap
from ktpfl_pipeline.core.matrix.teachers import mix_logits, soft_predictions
from ktpfl_pipeline.core.method import PersonalState, RoundReport
from ktpfl_pipeline.core.transfer import fetched
from ktpfl_pipeline.core.weights import Models, Params, average, mix, select
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState


@dataclass(frozen=True, eq=False)
class KTpFLJointState(KTpFLState):
    """The state between rounds: c, and the models u_n of clients that took part, in `models`.

    Attributes:
        taught: h_m, the last model that each client uploaded.
        labels: π, (N, K) float64; a row of zeros for a client without predictions so far.
        sums: b_n of each client that took part.
    """

    taught: Models
    labels: Tensor
    sums: Mapping[int, float]


@dataclass(frozen=True)
class KTpFLJoint(KTpFL):
    """KT-pFL (joint): each round of KT-pFL starts from mixtures of models of one architecture.

    Attributes:
        start_share: α. The model that a client uses is a running mean of w_n + α (v_n - w_n), where v_n is the model at
            the start of a round and w_n is the model after local training.
        memory: β, the weight of a round in this running mean relative to the next round; 0 keeps only the newest.
    """

    title = "KT-pFL (joint)"
    covered = True
    exchanges = frozenset({"predictions", "parameters"})
    paper_name = None
    trained_last = True

    start_share: Annotated[float, Interval(ge=0, le=1)] = 0.25
    memory: Annotated[float, Interval(ge=0, lt=1)] = 0.75

    def init(self, fed: Federation) -> KTpFLJointState:
        """Start from the first matrix of KT-pFL; the server has no models yet."""
        labels = torch.zeros(len(fed.clients), fed.classes, dtype=torch.float64, device=fed.device)
        return KTpFLJointState({}, super().init(fed).coefficients, {}, labels, {})

    def round(
        self, state: KTpFLState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[KTpFLJointState, RoundReport]:
        """Run one communication round."""
        assert isinstance(state, KTpFLJointState)
        # 1. The server sends each client its start v_n. The client trains v_n to w_n and predicts the public batch.
        starts, own = self.starts(state, cohort, fed)
        metrics = {"own_weight": fmean(fetched(own))} if own else {}
        upload = exchange.train_and_predict(fed, starts, cohort, t)
        # 2. As in KT-pFL, the server learns c and mixes teachers. The client distills its teacher into w_n and uploads
        # the result, h_n.
        c, coefficients = self.learn(state.coefficients, fed.rows(cohort), self.objective(upload, fed))
        teachers = self.teachers(c, upload, fed)
        taught, report = exchange.teach(fed, PersonalState(state.taught), upload, teachers, t)
        # 3. The server estimates the label distribution π_n of each client.
        labels = state.labels.clone()
        labels[fed.rows(cohort)] = soft_predictions(upload.logits, self.temperature).mean(dim=1)
        # 4. Each client updates its running mean: u_n ← u_n + (w_n + α (v_n - w_n) - u_n) / b_n.
        models = {n: self.averaged(state, n, starts[n], upload.models[n]) for n in cohort}
        sums = {**state.sums, **{n: self.sum_with_next(state, n) for n in cohort}}
        state = KTpFLJointState({**state.models, **models}, coefficients, taught.models, labels, sums)
        sizes = exchange.both_ways(upload.models)
        traffic = {n: report.traffic[n] + sizes[n] for n in cohort}
        return state, RoundReport(upload.models, traffic, coefficients, metrics=metrics)

    def teachers(self, c: Tensor, upload: exchange.Upload, fed: Federation) -> Tensor:
        """Return the teachers p_n = softmax(Σ_m c_nm z_m / T), (|S|, B, K): geometric means instead of Eq. (6)'s."""
        return mix_logits(c, upload.logits, fed.distillation.temperature)

    def sum_with_next(self, state: KTpFLJointState, n: int) -> float:
        """Return b_n after one more round: b_n ← 1 + β b_n."""
        return 1.0 + self.memory * state.sums.get(n, 0.0)

    def averaged(self, state: KTpFLJointState, n: int, start: Params, trained: Params) -> Params:
        """Return u_n after one more round with v_n = `start` and w_n = `trained`; after a first round u_n is w_n."""
        if n not in state.models:
            return trained
        new, share = 1.0 / self.sum_with_next(state, n), self.start_share
        weights = torch.tensor([1.0 - new, new * (1.0 - share), new * share], dtype=torch.float64)
        return average([state.models[n], trained, start], weights)

    def starts(self, state: KTpFLJointState, clients: Iterable[int], fed: Federation) -> tuple[Models, list[Tensor]]:
        """Return each client's start v_n = Σ_m d_nm h_m, and the weights d_nn, () each, of the clients' own models.

        The sum is over the clients of n's architecture that have uploaded a model. If there are none, v_n is the
        initial model. d_nn is returned only for clients that have uploaded a model.
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
        """Return d, (r, n), whose rows sum to one, from the label overlaps o, (r, n), and the data shares, (n,).

        The row of a client that never took part has no overlap, so it gets the data shares.
        """
        return by_overlap(common, shares)

    def adapt(self, state: KTpFLState, models: Models, epochs: int, fed: Federation) -> Models:
        """Return u_n after local training from v_n, as in a round.

        A client that never took part trains its model in `models`. Zero epochs leave all models unchanged.
        """
        assert isinstance(state, KTpFLJointState)
        if not epochs:
            return models
        starts, _ = self.starts(state, [n for n in models if n in state.models], fed)
        trained = fed.fine_tune({**models, **starts}, epochs)
        return {n: self.averaged(state, n, starts[n], w) if n in starts else w for n, w in trained.items()}

    def sent(self, state: KTpFLState, clients: list[int], fed: Federation) -> Models:
        """Return the start v_n that the server would send to each client."""
        assert isinstance(state, KTpFLJointState)
        return self.starts(state, clients, fed)[0]

    def sent_first(self, there: Models, newcomers: Sequence[int], fed: Federation) -> Models:
        """Return the average of the trained clients' models of each new client's architecture, if there are any."""
        groups, found = fed.of_one_architecture(there), dict[int, Params]()
        for architecture, asked in fed.of_one_architecture(newcomers).items():
            if group := groups.get(architecture):
                found |= dict.fromkeys(asked, fed.average(select(there, group)))
        return found
