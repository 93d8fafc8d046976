"""Membership inference: who sees a model, or its predictions alone, guesses which images it was trained on.

Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting, CSF 2018,
https://arxiv.org/abs/1709.01604: an image is taken for a member where the model's loss on it is small. Who sees soft
predictions of public images and no parameters must make a model of them first: a surrogate, distilled from them.
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
    """How well losses tell members from others.

    Attributes:
        advantage: the largest difference of true and false positive rates over all thresholds, 0 to 1. It is a maximum
            and above 0 by chance.
        auc: area under the ROC curve: the chance that a member has the smaller loss, ties counting half.
    """

    advantage: float
    auc: float


def infer(members: Tensor, others: Tensor, weights: tuple[Tensor, Tensor] | None = None) -> Inference:
    """Return what thresholds on the loss achieve.

    Args:
        members: (m,) losses of training images.
        others: (o,) losses of images that the model has not seen.
        weights: (m,) and (o,) how much each image counts, see `standardized`; None counts all alike.
    """
    counts = weights or (torch.ones(len(members)), torch.ones(len(others)))
    _, place = torch.unique(torch.cat([members, others]).double(), return_inverse=True)  # ties are one threshold
    ours, theirs = torch.split(place, [len(members), len(others)])
    rates = [
        torch.zeros(int(place.max()) + 1, dtype=torch.float64).index_add_(0, where, own.double() / own.double().sum())
        for where, own in ((ours, counts[0]), (theirs, counts[1]))
    ]
    true, false = (rate.cumsum(dim=0) for rate in rates)  # positive rates with the threshold at each loss
    advantage = float((true - false).max().clamp_min(0.0))
    return Inference(advantage, float((rates[1] * (true - rates[0] / 2)).sum()))


def standardized(members: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights with which both groups have the members' distribution over strata, (m,) and (o,).

    So that it is not the classes, or the clients, that tell members from others. Strata without an image in one of the
    groups count nothing.

    Args:
        members: (m,) number of each member's stratum, of its client and class for example.
        others: (o,) the same of the others.
    """
    strata = int(torch.cat([members, others]).max()) + 1
    own, their = torch.bincount(members, minlength=strata), torch.bincount(others, minlength=strata)
    in_both = (own > 0) & (their > 0)
    return in_both[members].double(), (in_both * own / their.clamp_min(1))[others].double()


def losses(fed: Federation, models: Models, split: Split) -> dict[int, Tensor]:
    """Return each client's model's cross-entropy on each image of its own `split`, (V_n,)."""
    calls = {n: (params, getattr(fed.by_id[n], split).inputs) for n, params in models.items()}
    logits = fed.run("attack", operations.cross_logits, calls)
    labels = {n: getattr(fed.by_id[n], split).labels for n in models}
    return {n: F.cross_entropy(found.cpu(), labels[n], reduction="none") for n, found in logits.items()}


def attack(fed: Federation, models: Models) -> Inference:
    """Return what a loss threshold on the clients' models tells of their training images, against their test images.

    One threshold for all clients, classes and clients standardized.
    """
    inside, outside = losses(fed, models, "train"), losses(fed, models, "test")
    strata = [
        torch.cat([getattr(fed.by_id[n], split).labels + place * fed.classes for place, n in enumerate(models)])
        for split in ("train", "test")
    ]
    weights = standardized(strata[0], strata[1])
    return infer(torch.cat(list(inside.values())), torch.cat(list(outside.values())), weights)


def surrogates(fed: Federation, uploads: Sequence[tuple[Tensor, dict[int, Tensor]]], epochs: int) -> Models:
    """Return what an attacker makes of the clients' uploads: a model of the same architecture for each.

    It starts from the common initial model and learns one round's predictions after another, the last ones last.

    Args:
        fed: the federation, with the public images.
        uploads: of each round (B,) indices of the public samples, and each client's soft predictions there, (B, K).
        epochs: over each round's predictions.
    """
    fed = replace(fed, distillation=replace(fed.distillation, epochs=epochs, temperature=1.0))
    models = fed.initial_models()
    for t, (batch, soft) in enumerate(uploads, start=1):
        models |= fed.distill(select(models, soft), torch.stack(list(soft.values())), batch, t)
    return models
