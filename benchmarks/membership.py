"""Membership inference on digits, by attackers with parameters or predictions, with and without private training.

    python benchmarks/membership.py        writes benchmarks/results/<date>-membership.md

Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting, CSF 2018,
https://arxiv.org/abs/1709.01604: an image counts as a member if the model's loss on it is small. The models are those
of the clients after the last local training. One attacker has the uploaded parameters. Another attacker has only soft
predictions of public batches, and distills a surrogate of the same architecture from the last four of them. The number
of batches and the epochs were chosen so that surrogates agree best with the last upload. Private training leaves out
the architecture with BatchNorm, and its learning rate was chosen on validation images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, NamedTuple

import measure
import torch
import torch.nn.functional as F
from studies import LOCAL, configured, markdown
from torch import Tensor

from ktpfl_pipeline.analysis.statistics import difference
from ktpfl_pipeline.core import privacy
from ktpfl_pipeline.core.client import operations
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.setting import Split
from ktpfl_pipeline.core.weights import Models, select
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import title
from ktpfl_pipeline.reports.numbers import mean

CLIENTS, ROUNDS, SEEDS, PRIVATE_SEEDS = 20, 8, range(5), range(3)
LAST, EPOCHS = 4, 10  # rounds from which a surrogate learns, and epochs on each
ALL, WITHOUT_BATCH_NORM, ALIKE = ("lenet", "cnn", "cnn_bn", "mlp"), ("lenet", "cnn", "mlp"), ("cnn",)
NORM, DELTA, RATE = 1.0, 1e-4, 0.2
NOISE: dict[str, tuple[float, ...]] = {"local": (0.0, 1.0, 2.0, 4.0), "kt_pfl": (0.0, 1.0)}
"""Noise multipliers; with more, KT-pFL's distillation diverges at this rate."""


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

    def __sub__(self, other: "Inference") -> "Inference":
        return Inference(self.advantage - other.advantage, self.auc - other.auc)


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


class Played(NamedTuple):
    """A finished run."""

    fed: Federation
    models: Models  #: the clients' after the last local training. Either they or their predictions are uploaded
    uploads: list[tuple[Tensor, dict[int, Tensor]]]  #: indices and soft predictions of the last rounds
    accuracy: float  #: mean over clients and the last five rounds, as a fraction of 1

    def spent(self) -> list[float]:
        own = self.fed.training
        if own.privacy is None:
            return [math.inf]
        samples = [len(client.train) for client in self.fed.clients]
        return privacy.spent(own.privacy, samples, [ROUNDS * own.epochs] * len(samples), own.batch_size)


def play(method: str, seed: int, architectures: Sequence[str] = ALL, noise: float = 0.0) -> Played:
    """Run a method, with private local training if there is noise, and keep the clients' models after it."""
    training: dict[str, Any] = {"epochs": 5}
    if noise:
        dp_sgd = {"noise_multiplier": noise, "max_grad_norm": NORM, "delta": DELTA}
        training |= {"learning_rate": RATE, "privacy": dp_sgd}
    partition, public = {"scheme": "dirichlet", "alpha": 0.3}, {"batch": 300}
    fed = federation("digits", CLIENTS, [*architectures], partition, seed, training=training, public=public)
    made, ids = configured(method), list(fed.by_id)
    state, uploads, accuracies = made.init(fed), [], []
    for t in range(1, ROUNDS + 1):
        state, report = made.round(state, ids, t, fed)
        if t > ROUNDS - LAST:
            soft = soft_predictions(fed.logits(report.after_local, batch := fed.public_batch(t), t))
            uploads.append((batch, dict(zip(ids, soft, strict=True))))
        if t > ROUNDS - 5:
            accuracies += [each.accuracy for each in fed.evaluate(made.personal(state, ids, fed), "test").values()]
    return Played(fed, report.after_local, uploads, fmean(accuracies))


def attacks() -> tuple[dict[str, list[Inference]], dict[str, list[float]]]:
    """Attack runs without privacy; return inferences by row and seed, and accuracies or agreements as fractions."""
    found: dict[str, list[Inference]] = {}
    accuracy: dict[str, list[float]] = {}
    for seed in SEEDS:
        for method, architectures in ((LOCAL, ALL), ("kt_pfl", ALL), ("kt_pfl_params", ALIKE), ("fedavg", ALIKE)):
            run = play(method, seed, architectures)
            if method == LOCAL:
                found.setdefault("untrained models", []).append(attack(run.fed, run.fed.initial_models()))
            found.setdefault(row := f"{title(method)}, parameters", []).append(attack(run.fed, run.models))
            accuracy.setdefault(row, []).append(run.accuracy)
            if architectures == ALL:
                guessed = surrogates(run.fed, run.uploads, EPOCHS)
                found.setdefault(row := f"{title(method)}, predictions", []).append(attack(run.fed, guessed))
                seen, said = run.uploads[-1]
                agreed = run.fed.logits(guessed, seen).argmax(dim=2) == torch.stack(list(said.values())).argmax(dim=2)
                accuracy.setdefault(row, []).append(float(agreed.double().mean()))
        print(f"seed {seed}", flush=True)
    return found, accuracy


def costs() -> list[list[str]]:
    """Run methods with private local training, and without, on models without BatchNorm; return a row for each."""
    rows = []
    for method, noise in [(method, noise) for method, noises in NOISE.items() for noise in noises]:
        runs = [play(method, seed, WITHOUT_BATCH_NORM, noise) for seed in PRIVATE_SEEDS]
        epsilon = [f"{fmean(of(run.spent()) for run in runs):.3g}" for of in (max, median)]
        told = intervals([attack(run.fed, run.models) for run in runs])
        rows.append([title(method), f"{noise:g}", *epsilon, str(mean([run.accuracy for run in runs])), *told])
        print(*rows[-1], flush=True)
    return rows


def intervals(found: list[Inference], sign: str = "") -> list[str]:
    """Return the means of the advantage in points and of the AUC, with their 95 % t intervals over seeds."""
    shown = []
    for values, form in (([100 * each.advantage for each in found], ".1f"), ([each.auc for each in found], ".3f")):
        over = difference(values)
        assert over is not None
        numbers = [f"{value:{sign}{form}}" for value in (over.mean, *(over.ends or ()))]
        shown.append(f"{numbers[0]} [{', '.join(numbers[1:])}]")
    return shown


def main() -> None:
    torch.set_num_threads(1)
    found, accuracy = attacks()
    inferred = ["advantage, points", "AUC"]
    rows = [[row, *intervals(each), str(mean(accuracy.get(row, [])) or "-")] for row, each in found.items()]
    pairs = [
        ("KT-pFL, parameters", "KT-pFL, predictions"),
        ("Local-only, parameters", "Local-only, predictions"),
        ("KT-pFL, predictions", "untrained models"),
        ("KT-pFL, parameters", "Local-only, parameters"),
    ]
    gaps = {(one, other): [a - b for a, b in zip(found[one], found[other], strict=True)] for one, other in pairs}
    apart = [[" minus ".join(pair), *intervals(each, "+")] for pair, each in gaps.items()]
    last = "accuracy of the model, or agreement of the surrogate, %"
    lines = [
        f"# Membership inference on digits, {measure.today()}",
        "",
        f"{measure.hardware()}; {CLIENTS} clients, {ROUNDS} rounds, {', '.join(ALL)} ({title('kt_pfl_params')} and",
        f"{title('fedavg')}: {ALIKE[0]} alone). In brackets 95 % t intervals over {len(SEEDS)} seeds.",
        *("", markdown([["model, what is seen", *inferred, last], *rows])),
        *("", markdown([["difference, paired by seed", *inferred], *apart]), ""),
        "The advantage is the largest difference of true and false positive rates over all thresholds, one for all",
        "clients; the row of untrained models says how much of it is chance. Members are a client's training images,",
        "others its test images, weighted to the members' distribution over clients and classes.",
        *("", f"## Private local training, {len(PRIVATE_SEEDS)} seeds", ""),
        markdown([["method", "σ", "largest ε", "median ε", "accuracy, %", *inferred], *costs()]),
        "",
        f"{', '.join(WITHOUT_BATCH_NORM)}; gradients clipped to {NORM:g}, δ = {DELTA:g}, with privacy the rate",
        f"is {RATE:g}. The attacker sees parameters. ε is of all rounds, means over seeds.",
    ]
    measure.write("membership", lines)


if __name__ == "__main__":
    main()
