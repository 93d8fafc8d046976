"""Writes docs/project/what_leaves.md, what leaves a client by method: ``python docs/generate/what_leaves.py``.

Each method runs two rounds of a toy federation. The bytes that it reports of a traffic category are compared with the
formulas of that category, one of which must fit all members of the cohort; the formula then gives the bytes at the
paper's settings.
"""

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))

import toy

from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.metrics import Traffic
from ktpfl_pipeline.core.settings import Distillation, LocalTraining
from ktpfl_pipeline.core.weights import wire_bytes
from ktpfl_pipeline.methods import METHODS, create
from ktpfl_pipeline.methods.fedmrl import FedMRL
from ktpfl_pipeline.methods.fedproto import FedProto

DOCUMENT = Path(__file__).parents[1] / "project" / "what_leaves.md"
BEGIN, END = "<!-- what leaves: generated -->\n", "<!-- end of what leaves -->\n"
ALIGNED = 9
FEATURE = 32  # another number than any toy model has
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    **{name: {"common": "linear"} for name in ("fml", "fedapen")},
    "fedmrl": {"common": "conv", "dimension": 9},
    **{
        name: {"common": "linear", "start": 1.0, "end": 1.0} for name in ("fedkd", "fedkd_summed")
    },  # at most: how much less depends on the updates
    "fedfomo": {"candidates": 4},
    **{
        name: {"dimension": FEATURE}
        for name in ("fedproto", "fedtgp", "lg_fedavg", "fedgh", "fedre", "fedssa", "fedgen")
    },
    "fedhenn": {"samples": ALIGNED},
    "scarlet": {"duration": 0},  # nothing is cached
    "selective_fd": {"quantile": 0.0, "ambiguity": 2.0, "width": 1e9, "regularization": 1e6},  # everything is selected
}
BRIEF, BRIEF_DISTILLATION = LocalTraining(1, 32, 0.1), Distillation(1, 8, 0.05)  # a step: more bytes are none
COHORT = [3, 7, 11]  # of five, so that formulas of the cohort and of all clients differ
PAPER = {"lenet": 44_426, "alexnet": 20_125_386, "resnet18": 11_172_810 + 9_600, "shufflenet_v2": 1_263_422 + 16_180}
ALIKE = {"mcmahan_cnn": 1_663_370}
"""Parameters, and BatchNorm's means and variances, at 1x28x28 and ten classes: what the tests of the models count."""


@dataclass(frozen=True)
class Sizes:
    """The sizes that a client's formulas are made of.

    Attributes:
        public: B.
        pixels: of a public image, a byte each.
        classes: K.
        owned: classes of which the client has training images.
        feature: F, of class means and common heads.
        width: f, of the features of the client's model; here of McMahan's CNN for all.
        clients: N.
        cohort: models of the cohort's members, |S|.
        candidates: M', models that FedFomo sends a client.
        step: b, public images of a mini-batch.
        aligned: B', public images of FedHeNN's kernels.
        own: d_n, float32 numbers of the client's model.
        others: the same of the other members' models together.
        body: of its model without the head.
        common: d_q, of FML's common model.
        unnormalized: of its model without BatchNorm.
        trained: of its model without the statistics of BatchNorm.
        shared: d_x + (d₁ + 1) K, of FedMRL's common extractor and head.
    """

    public: int
    pixels: int
    classes: int
    owned: int
    feature: int
    width: int
    clients: int
    cohort: int
    candidates: int
    step: int
    aligned: int
    own: int
    others: int
    body: int
    common: int
    unnormalized: int
    trained: int
    shared: int

    @property
    def generator(self) -> int:
        """Numbers of FedGen's generator, of 32 + K inputs and 256 units."""
        return (32 + self.classes + 1) * 256 + 257 * self.feature


Formula = Callable[[Sizes], int]
FORMULAS: dict[str, dict[str, Formula]] = {
    "predictions": {
        "4BK": lambda s: 4 * s.public * s.classes,
        "8BK": lambda s: 8 * s.public * s.classes,
        "4BK + B/8": lambda s: 4 * s.public * s.classes + -(-s.public // 8),
    },
    "prototypes": {
        "4FK": lambda s: 4 * s.feature * s.classes,
        "4F · its classes": lambda s: 4 * s.feature * s.owned,
        "4(F + K)": lambda s: 4 * (s.feature + s.classes),
        "4KK": lambda s: 4 * s.classes * s.classes,
        "4f": lambda s: 4 * s.width,
        "4fK": lambda s: 4 * s.width * s.classes,
        "8f · its classes + 4": lambda s: 8 * s.width * s.owned + 4,
        "4K · its classes": lambda s: 4 * s.classes * s.owned,
    },
    "similarities": {
        "4 Σ b²": lambda s: 4 * (s.public // s.step * s.step**2 + (s.public % s.step) ** 2),
        "2 B'(B' + 1)": lambda s: 2 * s.aligned * (s.aligned + 1),
    },
    "coefficients": {
        "4|S|": lambda s: 4 * s.cohort,
        "4(M' + 1)": lambda s: 4 * (s.candidates + 1),
        "8 · 4 lengths": lambda s: 32,
        "4": lambda s: 4,
    },
    "parameters": {
        "4d": lambda s: 4 * s.own,
        "4 Σ d of the others": lambda s: 4 * s.others,
        "4d(N - 1)": lambda s: 4 * s.own * (s.clients - 1),
        "4dM'": lambda s: 4 * s.own * s.candidates,
        "4d of the body": lambda s: 4 * s.body,
        "4d + 4d without statistics": lambda s: 4 * (s.own + s.trained),
        "4d of the body + 4(2f + 6 + K)f": lambda s: 4 * (s.body + (2 * s.width + 6 + s.classes) * s.width),
        "4d + 4(2f + 6)f": lambda s: 4 * (s.own + (2 * s.width + 6) * s.width),
        "4d without BatchNorm": lambda s: 4 * s.unnormalized,
        "4d of the shared model": lambda s: 4 * s.common,
        "4(d_x + (d₁ + 1)K)": lambda s: 4 * s.shared,
        "4(F + 1)K": lambda s: 4 * (s.feature + 1) * s.classes,
        "4(F + 1) · its classes": lambda s: 4 * (s.feature + 1) * s.owned,
        "4(F + 1)K + 4d of the generator": lambda s: 4 * ((s.feature + 1) * s.classes + s.generator),
    },
    "public": {
        "B · pixels": lambda s: s.public * s.pixels,
        "B' · pixels": lambda s: s.aligned * s.pixels,
    },
}


@dataclass(frozen=True)
class Leaving:
    """What leaves a client with one method.

    Attributes:
        formulas: by traffic category; only those that travel.
        alike: whether all clients need one architecture.
        counts: whether the server weighs clients by their numbers of training images.
    """

    formulas: dict[str, str]
    alike: bool
    counts: bool


@cache
def leaving(name: str) -> Leaving:
    """Run one method on toy data and find the formulas of its traffic."""
    method = create(name, HYPERPARAMETERS.get(name))
    fed = without_a_class(toy.federation_for(method, training=BRIEF, distillation=BRIEF_DISTILLATION))
    with patch.object(Federation, "data_weights", autospec=True, side_effect=Federation.data_weights) as weighed:
        state, _ = method.round(method.init(fed), list(toy.IDS), 1, fed)
        _, report = method.round(state, COHORT, 2, fed)
    found = {kind: formula_of(kind, report.traffic, fed) for kind in vars(Traffic())}
    alike = len({client.architecture for client in fed.clients}) == 1
    return Leaving({kind: formula for kind, formula in found.items() if formula}, alike, weighed.called)


def without_a_class(fed: Federation) -> Federation:
    """Return the federation with no training image of class 0 in its first client."""
    first, *rest = fed.clients
    kept = first.train.take(first.train.labels.nonzero().squeeze(1))
    return toy.again(fed, clients=(replace(first, train=kept), *rest))


def formula_of(kind: str, traffic: dict[int, Traffic], fed: Federation) -> str:
    """Return the one formula that gives each cohort member's bytes.

    Args:
        kind: the traffic category with its direction, such as ``predictions_up``.
        traffic: what each member of the cohort sent and received in the round, by client.
        fed: the federation of that round.

    Returns:
        The formula's name; empty where no bytes of this category travel.

    Raises:
        AssertionError: if no formula fits, or several do.
    """
    found = {n: getattr(own, kind) for n, own in traffic.items()}
    if not any(found.values()):
        return ""
    known = FORMULAS[category(kind)]
    fitting = [text for text, of in known.items() if all(of(toy_sizes(n, fed)) == found[n] for n in traffic)]
    if len(fitting) != 1:
        raise AssertionError(
            f"{kind} of {found} bytes: {fitting or 'no formula'} fit; add one to FORMULAS or correct it."
        )
    return fitting[0]


def category(kind: str) -> str:
    """Return a traffic category without its direction."""
    return kind.rpartition("_")[0]


@cache
def toy_numbers(architecture: str) -> int:
    """Return how many float32 numbers a toy model is."""
    return wire_bytes(toy.build(architecture).state_dict()) // 4


def toy_sizes(n: int, fed: Federation) -> Sizes:
    """Return the sizes of a toy client."""
    numbers = {m: toy_numbers(client.architecture) for m, client in fed.by_id.items()}
    width = {"linear": 64, "conv": 36, "mlp": 12, "both": 36}[fed.by_id[n].architecture]
    head = width * toy.CLASSES + toy.CLASSES
    owned = len(fed.by_id[n].train.labels.unique())
    others = sum(numbers[m] for m in COHORT if m != n)
    common = 64 * toy.CLASSES + toy.CLASSES
    own, normalized = numbers[n], {"conv": 16, "both": 16}.get(fed.by_id[n].architecture, 0)
    step, sizes = fed.distillation.batch_size, (len(fed.clients), len(COHORT), 3)
    make = partial(Sizes, 13, 64, toy.CLASSES, owned, FEATURE, width, *sizes, step, ALIGNED)
    return make(own, others, own - head, common, own - normalized, own - normalized // 2, 56 + 10 * toy.CLASSES)


def paper_sizes(*, alike: bool) -> list[Sizes]:
    """Return the sizes of the paper's clients: Fashion-MNIST, |D_r| = 3,000, twenty clients with two labels each."""
    own = list((ALIKE if alike else PAPER).values()) * (20 if alike else 5)
    head = 10 * 512 + 10
    make = partial(Sizes, 3000, 784, 10, 2, FedProto().dimension, 512, 20, 20, 4, 256, 1000)
    lenet = PAPER["lenet"]
    small = lenet - 850 + (min(FedMRL().dimension, 84) + 1) * 10  # its feature has 84 numbers, and its head 850
    return [make(d, sum(own) - d, d - head, lenet, d, d, small) for d in own]


def row(name: str) -> str:
    """Return one method's row."""
    found = leaving(name)
    sizes = paper_sizes(alike=found.alike)
    cells = []
    for direction in ("up", "down"):
        kinds = {kind: text for kind, text in found.formulas.items() if kind.endswith(f"_{direction}")}
        named = [f"{category(kind)} {text}" for kind, text in kinds.items()]
        each = [sum(FORMULAS[category(kind)][text](s) for kind, text in kinds.items()) for s in sizes]
        cells += ["; ".join(named).replace("|", "\\|") or "nothing", amount(fmean(each))]
    covered = "yes" if create(name).covered else "no"
    return f"| `{name}` | {' | '.join(cells)} | {'yes' if found.counts else 'no'} | {covered} |"


def amount(number: float) -> str:
    """Return bytes with three digits: ``120 kB``."""
    if number == 0:
        return "0"
    unit = min(int(math.log10(number) / 3), 2)
    return f"{number / 1000**unit:.3g} {('B', 'kB', 'MB')[unit]}"


def table() -> str:
    """Return the two tables: methods for any architectures, and those for one."""
    titles = {False: "Clients of several architectures:", True: "Clients of one architecture:"}
    head = "| method | up | per client and round | down | per client and round | knows $D_n$ | ε |\n"
    head += "| --- " * 7 + "|"
    parts = []
    for alike, title in titles.items():
        rows = [row(name) for name in METHODS if leaving(name).alike == alike]
        parts.append("\n".join([title, "", head, *rows, ""]))
    return "\n".join(parts)


def written(page: str) -> str:
    """Return the page with the tables in their place."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", page, flags=re.S)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
