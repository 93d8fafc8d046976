"""Membership inference on digits, by attackers with parameters or predictions, with and without private training.

    python benchmarks/membership.py        writes benchmarks/results/<date>-membership.md and .png

The attack is a loss threshold (`membership_attacks.py`) on the clients' models in the last round. One attacker has the
uploaded parameters. Another attacker has only soft predictions of public batches, and distills a surrogate of the same
architecture from the last four of them. The number of batches and the epochs were chosen so that surrogates agree best
with the last upload. The settings are those of conf/quick. Private training leaves out the architecture with BatchNorm,
and its learning rate was chosen on validation images.
"""

import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import Any

import measure
import torch
from kedro.config import OmegaConfigLoader
from matplotlib.figure import Figure
from measure import ROOT
from membership_attacks import Inference, attack, surrogates
from torch import Tensor

from ktpfl_pipeline import methods
from ktpfl_pipeline.analysis.statistics import difference
from ktpfl_pipeline.config import parsing, schema
from ktpfl_pipeline.core import privacy
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.matrix.teachers import soft_predictions
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import title as title_of
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS

EXPERIMENT = "hetero_digits"
SEEDS, PRIVATE_SEEDS = range(5), range(3)
LAST, EPOCHS = 4, 10  # rounds from which a surrogate learns, and epochs on each
WITHOUT_BATCH_NORM, ALIKE = ["lenet", "cnn", "mlp"], ["cnn"]
NORM, DELTA, RATE = 1.0, 1e-4, 0.2
NOISE: dict[str, tuple[float | None, ...]] = {"local": (None, 1.0, 2.0, 4.0), "kt_pfl": (None, 1.0)}
"""With more noise KT-pFL's distillation diverges at the rate of conf/quick."""
COLORS = {"parameters": "#d55e00", "predictions": "#0072b2", "nobody": "#98a2b3"}


@dataclass(frozen=True)
class Played:
    """A finished run.

    Attributes:
        fed: the federation.
        models: the clients' models after the last local training. Either they or their predictions are uploaded.
        uploads: indices and soft predictions of the last rounds; see `surrogates`.
        accuracy: mean over clients and the last five rounds, in percent.
    """

    fed: Federation
    models: Models
    uploads: list[tuple[Tensor, dict[int, Tensor]]]
    accuracy: float


def settings(changes: dict[str, Any]) -> schema.Experiment:
    """Return the experiment with some settings changed."""
    loader = OmegaConfigLoader(conf_source=str(ROOT / "conf"), env="quick", **CONFIG_LOADER_ARGS)
    changed = {**changes, "seeds": list(SEEDS), "compute": {"device": "cpu", "executor": "serial"}}
    return parsing.parse(EXPERIMENT, parsing.merged(loader["parameters"], {EXPERIMENT: changed})[EXPERIMENT])


@cache
def federated_data() -> FederatedData:
    """Return the images and their partition for every seed."""
    data: FederatedData = prepare(settings({}), ROOT / "data" / "01_raw")
    return data


def play(method: str, changes: dict[str, Any], seed: int) -> Played:
    """Run a method, and keep the clients' models after local training."""
    given = settings(changes)
    fed, made = assemble(given, federated_data(), seed), methods.create(method, given.methods.get(method))
    ids, state = list(fed.by_id), made.init(fed)
    uploads, accuracies, report = [], [], None
    for t in range(1, given.rounds + 1):
        state, report = made.round(state, ids, t, fed)
        if t > given.rounds - LAST:
            batch = fed.public_batch(t)
            soft = soft_predictions(fed.logits(report.after_local, batch, t))
            uploads.append((batch, dict(zip(ids, soft, strict=True))))
        if t > given.rounds - 5:
            found = fed.evaluate(made.personal(state, ids, fed), "test").values()
            accuracies.append(statistics.fmean(evaluation.accuracy for evaluation in found))
    assert report is not None
    return Played(fed, report.after_local, uploads, 100 * statistics.fmean(accuracies))


def attacks() -> tuple[dict[str, list[Inference]], dict[str, list[float]]]:
    """Attack runs without privacy; return inferences by row and seed, and accuracies or agreements in percent."""
    found: dict[str, list[Inference]] = {}
    accuracy: dict[str, list[float]] = {}
    for seed in SEEDS:
        for method, changes in {
            "local": {},
            "kt_pfl": {},
            "kt_pfl_params": {"architectures": ALIKE},
            "fedavg": {"architectures": ALIKE},
        }.items():
            run = play(method, changes, seed)
            if method == "local":
                found.setdefault("untrained | nobody", []).append(attack(run.fed, run.fed.initial_models()))
            title = title_of(method)
            found.setdefault(f"{title} | parameters", []).append(attack(run.fed, run.models))
            accuracy.setdefault(f"{title} | parameters", []).append(run.accuracy)
            if not changes:
                guessed = surrogates(run.fed, run.uploads, EPOCHS)
                found.setdefault(f"{title} | predictions", []).append(attack(run.fed, guessed))
                seen, said = run.uploads[-1]
                agreed = run.fed.logits(guessed, seen).argmax(dim=2) == torch.stack(list(said.values())).argmax(dim=2)
                accuracy.setdefault(f"{title} | predictions", []).append(100 * float(agreed.double().mean()))
            run.fed.executor.close()
        print(f"seed {seed}", flush=True)
    return found, accuracy


def table(found: dict[str, list[Inference]], accuracy: dict[str, list[float]]) -> list[str]:
    """Return the table of inferences."""
    lines = [
        "| model | what is seen | advantage, points | AUC | accuracy of the model, or agreement of the surrogate, % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row, values in found.items():
        shown = spread(accuracy[row]) if row in accuracy else "-"
        lines.append(f"| {row} | {interval(values, 'advantage')} | {interval(values, 'auc')} | {shown} |")
    return lines


def gaps(found: dict[str, list[Inference]]) -> list[str]:
    """Return the paired differences between rows of the table."""
    pairs = [
        ("KT-pFL | parameters", "KT-pFL | predictions"),
        ("Local-only | parameters", "Local-only | predictions"),
        ("KT-pFL | predictions", "untrained | nobody"),
        ("KT-pFL | parameters", "Local-only | parameters"),
    ]
    lines = ["| difference, paired by seed | advantage, points | AUC |", "| --- | --- | --- |"]
    for one, other in pairs:
        less = [
            Inference(a.advantage - b.advantage, a.auc - b.auc) for a, b in zip(found[one], found[other], strict=True)
        ]
        names = " minus ".join(row.replace(" |", ",") for row in (one, other))
        lines.append(f"| {names} | {interval(less, 'advantage', '+')} | {interval(less, 'auc', '+')} |")
    return lines


@dataclass(frozen=True)
class Cost:
    """The results of a run, with or without noise: accuracy in percent, an attacker's inference, and the clients' ε."""

    accuracy: float
    told: Inference
    spent: list[float]


def cost(method: str, noise: float | None, seed: int) -> Cost:
    """Run a method with private local training, or without, on models without BatchNorm, and attack it."""
    changes: dict[str, Any] = {"architectures": WITHOUT_BATCH_NORM}
    if noise:
        private = {"noise_multiplier": noise, "max_grad_norm": NORM, "delta": DELTA}
        changes["training"] = {"privacy": private, "learning_rate": RATE}
    run = play(method, changes, seed)
    spent = [math.inf]
    if run.fed.training.privacy is not None:
        samples, epochs = [len(client.train) for client in run.fed.clients], run.fed.training.epochs
        taken = [settings({}).rounds * epochs] * len(samples)
        spent = privacy.spent(run.fed.training.privacy, samples, taken, run.fed.training.batch_size)
    run.fed.executor.close()
    return Cost(run.accuracy, attack(run.fed, run.models), spent)


Costs = dict[tuple[str, float | None], list[Cost]]


def cost_table(costs: Costs) -> list[str]:
    """Return the table of the costs of privacy."""
    lines = [
        "| method | σ | largest ε | median ε | accuracy, % | advantage, points | AUC |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (method, noise), runs in costs.items():
        most, middle = (statistics.fmean(of(run.spent) for run in runs) for of in (max, statistics.median))
        told = [run.told for run in runs]
        cells = [title_of(method), noise or "none", f"{most:.3g}", f"{middle:.3g}", spread([r.accuracy for r in runs])]
        cells += [interval(told, "advantage"), interval(told, "auc")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def interval(found: list[Inference], what: str, sign: str = "") -> str:
    """Return the mean and the 95 % t interval over seeds. The advantage is in points."""
    scale, digits = (100, 1) if what == "advantage" else (1, 3)
    over = difference([scale * getattr(inference, what) for inference in found])
    assert over is not None
    numbers = [f"{value:{sign}.{digits}f}" for value in (over.mean, over.low or 0.0, over.high or 0.0)]
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


def spread(values: list[float]) -> str:
    """Return mean ± standard deviation over seeds."""
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def figure(found: dict[str, list[Inference]], costs: Costs) -> Figure:
    """Draw the AUC by the attacker's knowledge, with one dot per seed, and the accuracy against ε."""
    drawn = Figure(figsize=(11, 3.6), dpi=150, layout="constrained")
    left, right = drawn.subplots(1, 2)
    for place, (row, values) in enumerate(reversed(found.items())):
        seen = row.rpartition("| ")[2]
        aucs = [inference.auc for inference in values]
        left.plot(aucs, [place] * len(aucs), "o", color=COLORS[seen], alpha=0.45, markersize=5)
        left.plot(statistics.fmean(aucs), place, "|", color=COLORS[seen], markersize=18, markeredgewidth=2.5)
    left.axvline(0.5, color="#98a2b3", linewidth=1, linestyle=":")
    left.set_yticks(range(len(found)), [row.replace(" |", ",") for row in reversed(found)])
    left.set(xlabel="AUC of the loss threshold; 0.5 is guessing", title="Which images was a client trained on?")
    reached: list[float] = []
    for (method, noises), color, marker in zip(NOISE.items(), ("#98a2b3", "#0072b2"), "os", strict=True):
        accuracy = [statistics.fmean(run.accuracy for run in costs[method, noise]) for noise in noises]
        most = [statistics.fmean(max(run.spent) for run in costs[method, noise]) for noise in noises]
        right.semilogx(most[1:], accuracy[1:], marker=marker, color=color, label=title_of(method))
        reached = max(reached, most[1:], key=len)
        right.axhline(accuracy[0], color=color, linestyle="--", linewidth=1, label=f"{title_of(method)}, no privacy")
    right.set_xticks(reached, [f"{epsilon:.3g}" for epsilon in reached])
    right.minorticks_off()
    right.set(xlabel="largest ε of a client", ylabel="accuracy (%)", title="What privacy costs")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(color="#e4e7ec")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def main() -> None:
    """Measure, and write the tables and the figure."""
    torch.set_num_threads(1)
    found, accuracy = attacks()
    costs = {
        (method, noise): [cost(method, noise, seed) for seed in PRIVATE_SEEDS]
        for method, noises in NOISE.items()
        for noise in noises
    }
    write(found, accuracy, costs)


def write(found: dict[str, list[Inference]], accuracy: dict[str, list[float]], costs: Costs) -> None:
    """Write the tables and the figure."""
    given = settings({})
    sizes = [len(own.train) for partition in federated_data().partitions.values() for own in partition.values()]
    lines = [
        f"# Membership inference on digits, {measure.today()}",
        "",
        f"{measure.hardware()}; {EXPERIMENT} of conf/quick: {given.clients} clients with {min(sizes)} to {max(sizes)}",
        f"training images (median {statistics.median(sizes):.0f}), {given.rounds} rounds. In brackets 95 % t intervals",
        "over seeds.",
        "",
        f"![Membership inference and the cost of privacy]({measure.today()}-membership.png)",
        "",
        f"## A loss threshold, {len(SEEDS)} seeds",
        "",
        *table(found, accuracy),
        "",
        *gaps(found),
        "",
        f"{', '.join(given.architectures)}; "
        f"{title_of('kt_pfl_params')} and {title_of('fedavg')} with {ALIKE[0]} alone.",
        "The advantage is the largest difference of true and false positive rates over all thresholds, one for all",
        "clients; the row of untrained models says how much of it is chance. Members are a client's training images,",
        "others its test images, weighted to the members' distribution over clients and classes.",
        "",
        f"## Private local training, {len(PRIVATE_SEEDS)} seeds",
        "",
        *cost_table(costs),
        "",
        f"{', '.join(WITHOUT_BATCH_NORM)}; gradients clipped to {NORM:g}, δ = {DELTA:g}. With privacy the learning",
        f"rate is {RATE:g} (without {given.training.learning_rate:g}), chosen on validation images of local-only with",
        "seed 0. The attacker sees parameters. ε is of all rounds, the largest and the median over clients, means over",
        "seeds. With σ = 2 KT-pFL is not there: a client's distillation diverged.",
    ]
    figure(found, costs).savefig(measure.RESULTS / f"{measure.today()}-membership.png")
    print("\n".join(lines))
    measure.write("membership", lines)


if __name__ == "__main__":
    main()
