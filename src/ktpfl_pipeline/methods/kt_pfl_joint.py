"""KT-pFL (joint): a round of KT-pFL that starts from mixtures of models of one architecture; ours, from no paper.

Clients of one architecture share the body of their models, and the head as far as they have the same classes. The
server estimates that from predictions: the mean of a client's predictions on public samples is close to its
distribution of labels, even where the public samples are of another kind. A client starts its local training from the
mixture, and uses what training made of it. docs/kt_pfl_variants.md derives the rule and states what leaves a client;
docs/results/converged.md compares it with other methods. Further symbols, besides those of `kt_pfl`:

    π_n   state.labels    client n's mean soft prediction over the round's public samples, an estimate of its labels
    o_nm  overlap         Σ_k min(π_nk, π_mk): which share of their labels clients n and m have in common
    h_m   state.taught    client m's model after distillation, which the server mixes
    v_n   start           the mixture from which client n trains: body Σ_m b_m h_m, head Σ_m d_nm h_m
    w_n   upload.models   v_n after local training
    u_n   state.models    the model that client n uses: the running mean of what lies between v_n and w_n
"""

from collections.abc import Iterable, Sequence
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
from ktpfl_pipeline.core.weights import Models, Params, average, mix, select
from ktpfl_pipeline.methods.kt_pfl import KTpFL, KTpFLState

SHARPNESS = 2
"""The power of the overlap in the weights of heads."""


@dataclass(frozen=True, eq=False)
class KTpFLJointState(KTpFLState):
    """The state between rounds, in addition to c and the models u_n of clients that took part.

    Attributes:
        taught: h_m, the last model that each client uploaded.
        labels: π, (N, K) float64, zeros where a client never took part.
    """

    taught: Models
    labels: Tensor


@dataclass(frozen=True)
class KTpFLJoint(KTpFL):
    """KT-pFL (joint): each round of KT-pFL starts from mixtures of models of one architecture.

    Attributes:
        confidence: γ, the extra weight of clients with confident predictions; 0 is off, and safer where public samples
            come from another domain than private ones (docs/results/joint.md).
        start_share: α, how far the model that a client uses lies from its trained model w_n toward its start v_n.
        memory: β, the weight of the earlier rounds in that model; 0 keeps only this round's.
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
        return KTpFLJointState({}, super().init(fed).coefficients, {}, labels)

    def round(
        self, state: KTpFLState, cohort: list[int], t: int, fed: Federation
    ) -> tuple[KTpFLJointState, RoundReport]:
        """Run one communication round."""
        assert isinstance(state, KTpFLJointState)
        # 1. The server sends each client its start v_n, from which it trains, w_n, and predicts the public batch.
        starts = self.starts(state, cohort, fed)
        own = self.own_head_weights(state, cohort, fed)
        metrics = {"own_head_weight": fmean(own)} if own else {}
        upload = exchange.train_and_predict(fed, starts, cohort, t)
        # 2. KT-pFL: the server learns c and mixes teachers; w_n learns from its teacher, becomes h_n, and is uploaded.
        c, coefficients = self.learn(state.coefficients, fed.positions(cohort), self.objective(upload, fed))
        teachers = mix_confident(c, upload.soft, self.confidence)  # (|S|, B, K)
        taught, report = exchange.teach(fed, PersonalState(state.taught), upload, teachers, t)
        # 3. The server estimates what labels each client has.
        labels = state.labels.clone()
        if len(upload.batch):
            labels[fed.positions(cohort)] = soft_predictions(upload.logits, self.temperature).mean(dim=1)
        # 4. Each client averages: u_n ← β u_n + (1 - β) (w_n + α (v_n - w_n)).
        models = {n: self.averaged(state.models.get(n), starts[n], upload.models[n]) for n in cohort}
        state = KTpFLJointState({**state.models, **models}, coefficients, taught.models, labels)
        sizes = exchange.both_ways(upload.models)
        traffic = {n: report.traffic[n] + sizes[n] for n in cohort}
        return state, RoundReport(upload.models, traffic, coefficients, metrics=metrics)

    def averaged(self, before: Params | None, start: Params, trained: Params) -> Params:
        """Return u_n after a round, from u_n before the round, v_n and w_n; after a client's first round it is w_n."""
        if before is None:
            return trained
        new, share = 1.0 - self.memory, self.start_share
        weights = torch.tensor([self.memory, new * (1.0 - share), new * share], dtype=torch.float64)
        return average([before, trained, start], weights)

    def starts(self, state: KTpFLJointState, clients: Iterable[int], fed: Federation) -> Models:
        """Return v_n: the mean body of the architecture, and a head mixed by squared overlap of labels.

        b_m = D_m / Σ D and d_nm ∝ D_m o_nm², over the clients of n's architecture whose model the server has. If the
        model has no separate layer for the logits, the whole model is mixed like a head. The server has no label
        estimate for a never-sampled client, so its head is mixed like its body. If the server has no model, v_n is the
        initial model.
        """
        asked = list(clients)
        found, groups = dict(select(fed.initial_models(), asked)), fed.of_one_architecture(state.taught)
        for architecture, students in fed.of_one_architecture(asked).items():
            if not (known := groups.get(architecture)):
                continue
            models, shares = [state.taught[m] for m in known], fed.data_weights(known)
            head = fed.facts(architecture).head
            prefix = "" if head is None else f"{head.name}."
            body = average([{name: x for name, x in m.items() if not name.startswith(prefix)} for m in models], shares)
            heads = mix(
                [{name: x for name, x in m.items() if name.startswith(prefix)} for m in models],
                self.heads(state, students, known, fed),
            )
            for n, own in zip(students, heads, strict=True):
                found[n] = {name: own[name] if name in own else body[name] for name in models[0]}
        return {n: found[n] for n in asked}

    def heads(self, state: KTpFLJointState, students: list[int], known: list[int], fed: Federation) -> Tensor:
        """Return d of students, over the clients of their architecture whose model the server has, (r, n)."""
        rows = state.labels[fed.positions(students)], state.labels[fed.positions(known)]
        return self.head_weights(overlap(*rows), fed.data_weights(known))

    def head_weights(self, common: Tensor, shares: Tensor) -> Tensor:
        """Return d, rows that sum to one, from overlaps of labels, (r, n), and shares of the data, (n,)."""
        weights = shares * common**SHARPNESS
        sums = weights.sum(dim=1, keepdim=True)
        return torch.where(sums > 0, weights / sums.clamp_min(torch.finfo(sums.dtype).tiny), shares)

    def own_head_weights(self, state: KTpFLJointState, clients: Iterable[int], fed: Federation) -> list[float]:
        """Return d_nn, the weight of a client's own head in its start, of each client whose model the server has."""
        groups, weights = fed.of_one_architecture(state.taught), list[float]()
        for architecture, students in fed.of_one_architecture(n for n in clients if n in state.taught).items():
            rows = self.heads(state, students, known := groups[architecture], fed).tolist()
            weights += [row[known.index(n)] for n, row in zip(students, rows, strict=True)]
        return weights

    def sent(self, state: KTpFLState, clients: list[int], fed: Federation) -> Models:
        """Return the start that each client would be sent."""
        assert isinstance(state, KTpFLJointState)
        return self.starts(state, clients, fed)

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
