"""Membership inference: an attacker with a model, or only its predictions, guesses the images of its training.

Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting, CSF 2018,
https://arxiv.org/abs/1709.01604: an image counts as a member if the model's loss on it is small. An attacker with soft
predictions of public images but without parameters first distills a surrogate model from the predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.weights import Models, select


@dataclass(frozen=True)
class Inference:
    """The success of an attacker who distinguishes members from non-members by their losses.

    Attributes:
        advantage: the largest difference between true and false positive rates over all thresholds, 0 to 1. As a
            maximum, it is above 0 even by chance.
        auc: the area under the ROC curve, which is the probability that a member has a smaller loss than a non-member.
            Ties count one half.
    """

    advantage: float
    auc: float


def infer(members: Tensor, others: Tensor, weights: tuple[Tensor, Tensor] | None = None) -> Inference:
    """Return the success of thresholds on the loss.

    Args:
        members: (m,), the losses of training images.
        others: (o,), the losses of images that the model was not trained on.
        weights: (m,) and (o,), the weights of the images, see `standardized`; None gives all images equal weights.
    """
    counts = weights or (torch.ones(len(members)), torch.ones(len(others)))
    _, place = torch.unique(torch.cat([members, others]).double(), return_inverse=True)  # one threshold per loss
    ours, theirs = torch.split(place, [len(members), len(others)])
    rates = [
        torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add_(0, where, own.double() / own.double().sum())
        for where, own in ((ours, counts[0]), (theirs, counts[1]))
    ]
    true, false = (rate.cumsum(dim=0) for rate in rates)  # positive rates with the threshold at each loss
    advantage = float((true - false).max().clamp_min(0.0))
    return Inference(advantage, float((rates[1] * (true - rates[0] / 2)).sum()))


def standardized(members: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights, (m,) and (o,), with which both groups have the members' distribution over strata.

    With these weights, the attacker cannot distinguish the groups by their classes or clients. A stratum that one group
    lacks has the weight 0.

    Args:
        members: (m,), the number of each member's stratum, such as its client and class.
        others: (o,), the number of each non-member's stratum.
    """
    strata = int(torch.cat([members, others]).max()) + 1
    own, their = torch.bincount(members, minlength=strata), torch.bincount(others, minlength=strata)
    in_both = (own > 0) & (their > 0)
    return in_both[members].double(), (in_both * own / their.clamp_min(1))[others].double()


def losses(fed: Federation, models: Models, split: Split) -> dict[int, Tensor]:
    """Return the cross-entropy of each client's model on each image of the client's `split`, (V_n,)."""
    calls = {n: (params, getattr(fed.by_id[n], split).inputs) for n, params in models.items()}
    logits = fed.run("attack", operations.cross_logits, calls)
    labels = {n: getattr(fed.by_id[n], split).labels for n in models}
    return {n: F.cross_entropy(found.cpu(), labels[n], reduction="none") for n, found in logits.items()}


def attack(fed: Federation, models: Models) -> Inference:
    """Return the success of a loss threshold on the clients' models, with training images against test images.

    All clients have the same threshold. Classes and clients are standardized.
    """
    inside, outside = losses(fed, models, "train"), losses(fed, models, "test")
    strata = [
        torch.cat([getattr(fed.by_id[n], split).labels + place * fed.classes for place, n in enumerate(models)])
        for split in ("train", "test")
    ]
    weights = standardized(strata[0], strata[1])
    return infer(torch.cat(list(inside.values())), torch.cat(list(outside.values())), weights)


def surrogates(fed: Federation, uploads: Sequence[tuple[Tensor, dict[int, Tensor]]], epochs: int) -> Models:
    """Return an attacker's surrogates: for each client, a model of the same architecture, distilled from the uploads.

    A surrogate starts from the common initial model and learns the predictions of one round after another, in order.

    Args:
        fed: the federation, with the public images.
        uploads: for each round, the indices of public samples, (B,), and each client's soft predictions, (B, K).
        epochs: the number of epochs on the predictions of each round.
    """
    fed = replace(fed, distillation=replace(fed.distillation, epochs=epochs, temperature=1.0))
    models = fed.initial_models()
    for t, (batch, soft) in enumerate(uploads, start=1):
        models |= fed.distill(select(models, soft), torch.stack(list(soft.values())), batch, t)
    return models
