"""FedKD: each client's own model, the mentor, and a small shared model, the mentee, learn from each other.

Wu, Wu, Lyu, Huang, Xie: Communication-efficient federated learning via knowledge distillation, Nature Communications,
2022, https://www.nature.com/articles/s41467-022-29763-x. Only updates of the mentee are sent, each matrix as the
leading factors of its singular value decomposition.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Interval
from torch import Tensor

from ktpfl_pipeline.core import linalg
from ktpfl_pipeline.core.client import Outcome, Workspace
from ktpfl_pipeline.core.client.features import features
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.method import Personal, PersonalState, RoundReport, SmallCommon
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.setting import DTYPES
from ktpfl_pipeline.core.transfer import on_host, sent
from ktpfl_pipeline.core.weights import Models, Params, params_of, wire_bytes
from ktpfl_pipeline.methods.shared.mutual import Losses, train_pair


@dataclass(frozen=True, eq=False)
class FedKDState(PersonalState):
    """The state between rounds: each client's mentor, in `models`, and the mentee with what its traffic depends on.

    Attributes:
        common: the weights of the mentee.
        maps: each client's W^h, (F, F), which maps the features of the mentee to the features of the mentor.
        last: (N,) int64, the last round in which each client took part, or 0 for none. The client stores the mentee
            from before the update of that round.
        news: () int64, the size of the mentee's last update in bytes.
    """

    common: Params
    maps: Models
    last: Tensor
    news: Tensor


@dataclass(frozen=True)
class FedKD(SmallCommon, Personal):
    """FedKD (Wu et al., 2022): a small mentee carries knowledge between clients, in updates of nearly low rank.

    Attributes:
        common: the architecture of the mentee; None takes the smallest architecture of the clients.
        dimension: F, the common dimension of the features; 512 as in HtFLlib, the best of four measured values.
        start: the energy, a share of the sum of squared singular values, that updates keep before the first round; 0.95
            in the paper. The energy grows linearly.
        end: the energy that updates keep in the last round; 0.98 in the paper.
        divergence_weight: the weight of both KL terms, which are sums over classes. None takes 1/K, which makes them
            means over classes, as in other implementations. 1 is the paper's formula, in which the KL terms outweigh
            the labels.
        feature_weight: the weight of the squared distance between features; 1 in the paper.
    """

    title = "FedKD"
    exchanges = frozenset({"parameters"})
    needs_head = "layer"
    follows_rounds = True  # the energy grows from the first round to the last

    dimension: Annotated[int, Ge(1)] = 512
    start: Annotated[float, Interval(gt=0, le=1)] = 0.95
    end: Annotated[float, Interval(gt=0, le=1)] = 0.98
    divergence_weight: Annotated[float | None, Ge(0)] = None
    feature_weight: Annotated[float, Ge(0)] = 1.0

    def init(self, fed: Federation) -> FedKDState:
        """Start from the initial models and identity maps; no client has received the mentee yet."""
        common = fed.initial_model(self.architecture(fed))
        identity = torch.eye(self.dimension, device=fed.device, dtype=DTYPES[fed.compute.dtype])
        nobody = torch.zeros(len(fed.clients), dtype=torch.int64, device=fed.device)
        maps: Models = {client.id: {"weight": identity} for client in fed.clients}
        return FedKDState(fed.initial_models(), common, maps, nobody, nobody.sum())

    def round(self, state: FedKDState, cohort: list[int], t: int, fed: Federation) -> tuple[FedKDState, RoundReport]:
        """Send the mentee, train mentor and mentee on each other, and average compressed updates of the mentee."""
        energy = self.start + (self.end - self.start) * min(1.0, t / fed.rounds)
        nothing: Params = {name: torch.zeros_like(tensor) for name, tensor in state.common.items()}
        before = {n: (state.models[n], state.maps[n], nothing) for n in cohort}
        architecture = self.architecture(fed)
        calls = {n: (*before[n][:2], state.common, self, architecture, energy, t) for n in cohort}
        found = fed.run_training("train", train_client, calls, before)
        trained, maps, uploads = (dict(zip(found, each, strict=True)) for each in zip(*found.values(), strict=True))
        mean = fed.average({n: decoded(update, state.common) for n, update in uploads.items()})
        update = encoded(mean, energy)
        applied = decoded(update, state.common)
        common = {
            name: value + applied[name] if value.is_floating_point() else applied[name]
            for name, value in state.common.items()
        }
        rows = fed.rows(cohort)
        last = state.last[rows]
        current = (last == state.last.max()) & (last > 0)  # clients that lack only the last update of the mentee
        *up_to_date, news = torch.cat([current, state.news[None]]).tolist()
        whole = wire_bytes(state.common)
        traffic = {
            n: Traffic(parameters_up=wire_bytes(uploads[n]), parameters_down=news if has else whole)
            for n, has in zip(cohort, up_to_date, strict=True)
        }
        after = FedKDState(
            {**state.models, **trained},
            common,
            {**state.maps, **maps},
            state.last.index_fill(0, rows, t),
            sent(torch.tensor(wire_bytes(update)), fed.device),
        )
        return after, RoundReport(trained, traffic)


def train_client(
    space: Workspace,
    n: int,
    own: Params,
    own_map: Params,
    common: Params,
    method: FedKD,
    architecture: str,
    energy: float,
    t: int,
) -> Outcome[tuple[Params, Params, Params]]:
    """Train mentor and mentee on the same batches of client n's data for E epochs.

    The mentor minimizes CE + (λ KL(mentee ‖ mentor) + ν MSE(H, W^h h)) / (CE + CE of the mentee). H are the mentor's
    and h the mentee's features; λ is `divergence_weight` and ν is `feature_weight`. The mentee minimizes the same
    expression with exchanged roles. No gradient passes through the divisor or through a teacher's predictions.

    Args:
        own: the weights of client n's mentor.
        own_map: W^h of client n, (F, F).
        common: the weights of the mentee.
        method: provides F and the weights of the losses.
        architecture: the architecture of the mentee.
        energy: the share of squared singular values that the update keeps, 0 to 1.

    Returns:
        The mentor, W^h, and the compressed update of the mentee.
    """
    between, divergence = space.linear(own_map), method.divergence_weight
    divergence = 1.0 / space.setting.classes if divergence is None else divergence
    _, head = space.head(n, space.module(n, own))
    _, small_head = space.head(architecture, space.module(architecture, common, "common"))
    with features(head, method.dimension) as large, features(small_head, method.dimension) as small:

        def loss(n: int, of: Losses) -> Tensor:
            fit, apart = of.own + of.common, method.feature_weight * F.mse_loss(large.pop(), between(small.pop()))
            return fit + (divergence * (of.own_gap + of.common_gap) + apart) / fit.detach()

        outcome = train_pair(space, n, own, common, t, architecture, loss, also=(between,))
    mentor, mentee = outcome.value
    update = {
        name: tensor - common[name] if tensor.is_floating_point() else tensor  # counters and masks are sent whole
        for name, tensor in mentee.items()
    }
    return outcome.giving((mentor, params_of(between), encoded(update, energy)))


def encoded(update: Params, energy: float) -> Params:
    """Return a compressed update: the leading factors of each matrix's SVD, if these have fewer numbers.

    The squares of the kept singular values sum to at least the share `energy` of the sum of all squares. A convolution
    is a matrix with one row per output channel. Vectors are not compressed. The function runs on the host, so that a
    GPU synchronizes once and not once per matrix.
    """
    kept: dict[str, Tensor] = {}
    device = next(iter(update.values())).device
    for (name, tensor), here in zip(update.items(), on_host(update), strict=True):
        if here.ndim < 2 or not (here.is_floating_point() and here.isfinite().all()):  # other code reports divergence
            kept[name] = tensor
            continue
        matrix = here.flatten(1)
        u, s, v = linalg.svd(matrix)
        sums = s.double().square().cumsum(0)
        rank = min(len(s), 1 + int((sums <= energy * sums[-1]).sum()))
        if rank * (sum(matrix.shape) + 1) < matrix.numel():
            factors = {f"{name}/u": u[:, :rank], f"{name}/s": s[:rank], f"{name}/v": v[:rank]}
            kept |= {key: sent(factor, device) for key, factor in factors.items()}
        else:
            kept[name] = tensor
    return kept


def decoded(update: Params, like: Params) -> Params:
    """Return the decoded update, with the names and shapes of the model `like`."""
    found = dict(update)
    for name in like.keys() - update.keys():
        product = (update[f"{name}/u"] * update[f"{name}/s"]) @ update[f"{name}/v"]
        found[name] = product.view_as(like[name])
    return {name: found[name] for name in like}
