"""When does learning together pay? A map of settings with converged clients, and its prediction before training.

    python benchmarks/map.py run        the missing runs, about an hour; several processes may run at once
    python benchmarks/map.py page       the answer, tables and figure of docs/results/map.md, from the kept runs

A setting is a dataset, a number of training samples and of classes per client, a number of clients, a public set and
one or two architectures. Each is run with local-only training, KT-pFL, KT-pFL (joint), FedMD and local-only training
with matched work, with three seeds. All methods take `STEPS` mini-batch steps per round. The prediction uses one
exchange of predictions of clients that have only trained locally. The datasets are read from the npz files
fashion_mnist, mnist, cifar10, cifar100 and har in the folder KTPFL_REAL_DATA, or in data/01_raw without this variable.
`run` may be stopped at any time: a finished run is one line of benchmarks/results/map.csv.
"""

import re
import sys
import time
from dataclasses import replace
from itertools import combinations, product
from math import log
from statistics import fmean
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from measure import RAW, RESULTS, ROOT
from scipy.stats import binomtest
from studies import LOCAL, Rows, Study, configured, drawn, in_percent, made_once, named, read, replaced, trained

from ktpfl_pipeline.analysis.statistics import Difference, holm, paired
from ktpfl_pipeline.core.errors import DivergedError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.machine.resources import processor
from ktpfl_pipeline.core.metrics import ADAPTED
from ktpfl_pipeline.core.weights import Models
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.reports.figures.base import grid_of_panels, styled
from ktpfl_pipeline.reports.numbers import Entry, percent, signed
from ktpfl_pipeline.reports.style import INK

PAGE, FIGURE = ROOT / "docs" / "results" / "map.md", ROOT / "docs" / "images" / "map.png"
EVERY = RESULTS / "map.md"
ROUNDS, STEPS, LAST, EPOCHS, SEEDS, TEST, PUBLIC = 8, 60, 3, 5, range(3), 60, 150
"""Rounds, steps per round, rounds averaged, epochs of adaptation, seeds, test samples a client, public samples."""
CLASSES = {"digits": 10, "fashion_mnist": 10, "cifar10": 10, "har": 6}
SIZES = {"digits": (20, 50, 90), "fashion_mnist": (20, 100, 400), "cifar10": (20, 100, 400), "har": (20, 100, 400)}
"""Training and validation samples of a client. Digits has 1,797 images."""
FEW, MANY = 5, {"digits": 14, "fashion_mnist": 20, "cifar10": 20, "har": 20}
"""Numbers of clients other than ten."""
OTHER = {
    ("digits", "near"): "mnist",
    ("digits", "far"): "fashion_mnist",
    ("fashion_mnist", "near"): "mnist",
    ("fashion_mnist", "far"): "cifar10",
    ("cifar10", "near"): "cifar100",
    ("cifar10", "far"): "mnist",
    ("har", "far"): "noise",
}
"""Public datasets other than the private one."""
TITLES = {"digits": "Digits", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10, gray", "har": "People's sensors"}
METHODS = ("local", "kt_pfl", "kt_pfl_joint", "fedmd", "local_matched")
EXCHANGE = ("validation", "agreement", "overlap", "confidence")
"""What one exchange of predictions shows; see `exchanged`."""


class Setting(NamedTuple):
    """A place on the map."""

    data: str
    samples: int  #: for training and validation, per client
    classes: int  #: per client
    clients: int = 10
    public: str = "in-domain"
    architectures: int = 1


def settings() -> list[Setting]:
    """Return all settings: a grid of samples and classes, and changes of one other property at the middle size."""
    grid = [Setting(data, n, k) for data in CLASSES for n in SIZES[data] for k in counts(data)]
    middle = [Setting(data, SIZES[data][1], k) for data in CLASSES for k in (2, CLASSES[data])]
    clients = [each._replace(clients=number) for each in middle for number in (FEW, MANY[each.data])]
    public = [each._replace(public=kind) for each in middle for kind in ("near", "far") if (each.data, kind) in OTHER]
    several = [each._replace(architectures=2) for each in middle if each.data in ("fashion_mnist", "cifar10")]
    return [*grid, *clients, *public, *several]


PARTS = ("two", "half of the", "all")


def counts(data: str) -> tuple[int, ...]:
    """Return the numbers of classes per client, as in `PARTS`."""
    return 2, CLASSES[data] // 2, CLASSES[data]


def samples(data: str) -> dict[str, Any]:
    """Return inputs under their name in npz files, and labels, in an order of their own."""
    if data == "noise":
        return {"features": np.random.default_rng(0).normal(size=(1000, 9, 128)).astype("float32")}
    if data == "digits":
        from sklearn.datasets import load_digits

        loaded = load_digits()
        found = {"images": (loaded.images / 16 * 255).round().astype("uint8"), "labels": loaded.target}
    else:
        with np.load(RAW / f"{data}.npz") as file:
            name = "features" if data == "har" else "images"
            found = {name: file[name], "labels": file["labels"]}
    order = np.random.default_rng(0).permutation(len(found["labels"]))
    return {name: array[order] for name, array in found.items()}


def source(data: str, kind: str) -> str:
    """Return the source of a dataset's private or public samples. The first 200 of a dataset are public."""
    part = slice(200, None) if kind == "private" else slice(200)
    place = STUDY.folder / f"{data}-{kind}.npz"
    return f"npz:{made_once(place, lambda: {name: array[part] for name, array in samples(data).items()})}"


def made(setting: Setting, seed: int) -> Federation:
    image = None if setting.data == "har" else {"channels": 1, "size": 8 if setting.data == "digits" else 28}
    total = setting.samples + TEST
    return federation(
        source(setting.data, "private"),
        setting.clients,
        ["mlp", "lenet"][: setting.architectures],
        {"scheme": "k_labels", "labels_per_client": setting.classes, "test_share": TEST / total},
        seed,
        private={"samples": setting.clients * total},
        public={"source": source(OTHER.get((setting.data, setting.public), setting.data), "public"), "batch": PUBLIC},
        training={"steps": STEPS, "epochs": 1, "batch_size": 16, "learning_rate": 0.05},
        distillation={"epochs": 2, "batch_size": 64, "learning_rate": 0.01},
        compute={"memory_format": "contiguous"},  # as in the kept runs
        image=image,  # type: ignore[arg-type]
    )


def exchanged(fed: Federation, models: Models) -> dict[str, float]:
    """Return what one exchange of predictions on public samples shows, and the validation accuracy of the clients.

    ``agreement`` is the share of public samples on which two clients predict one class, ``overlap`` that of their mean
    predictions, Σ_k min(p_nk, p_mk), both as means over pairs; ``confidence`` is the mean highest probability.
    """
    p = fed.logits(models, fed.public_batch(1)).softmax(dim=2)  # (N, B, K)
    classes, means = p.argmax(dim=2), p.mean(dim=1)  # (N, B), (N, K)
    pairs = list(combinations(range(len(p)), 2))
    return {
        "validation": fmean(each.accuracy for each in fed.evaluate(models, "validation").values()),
        "agreement": fmean(float((classes[n] == classes[m]).float().mean()) for n, m in pairs),
        "overlap": fmean(float(torch.minimum(means[n], means[m]).sum()) for n, m in pairs),
        "confidence": float(p.amax(dim=2).mean()),
    }


COLUMNS = (*Setting._fields, "method", "seed", "after_transfer", "adapted", *EXCHANGE, "processor", "seconds")
Key = tuple[Setting, str, int]


def finish(key: Key, rows: Rows) -> Rows:
    """Run a method, and return its line: mean accuracies over clients and the last rounds, in percent."""
    setting, name, seed = key
    began, fed, method = time.process_time(), made(setting, seed), configured(name)
    about = {**setting._asdict(), "method": name, "seed": seed, "processor": processor()}
    line = {column: str(value) for column, value in about.items()}
    try:
        run = trained(method, fed, ROUNDS, LAST, [EPOCHS])
    except DivergedError:
        return [line]
    records = run.history[-LAST:]
    line |= {"after_transfer": in_percent(records, "after_transfer")}
    line |= {"adapted": in_percent(records, f"{ADAPTED}{EPOCHS}")}
    if name == LOCAL:
        shown = exchanged(fed, method.personal(run.state, list(fed.by_id), fed))
        line |= {column: f"{value:.4f}" for column, value in shown.items()}
    return [line | {"seconds": f"{time.process_time() - began:.1f}"}]


def identity(line: dict[str, str]) -> Key:
    words = {name: line[name] if name in ("data", "public") else int(line[name]) for name in Setting._fields}
    return Setting(**words), line["method"], int(line["seed"])  # type: ignore[arg-type]


STUDY = Study(RESULTS / "map.csv", COLUMNS, lambda rows: set(map(identity, rows)), finish)


def wanted() -> list[Key]:
    """Return all runs: those of the first seed first."""
    return [(setting, method, seed) for seed in SEEDS for setting in settings() for method in METHODS]


Values = dict[tuple[Setting, str, str], dict[int, float]]
"""Values by seed, by setting, method and column; accuracies are fractions of 1."""
POINTS = {"after_transfer": "after transfer", "adapted": "adapted"}


def values(lines: list[dict[str, str]]) -> Values:
    found: Values = {}
    for line in lines:
        setting, method, seed = identity(line)
        for name in (*POINTS, *EXCHANGE):
            if line[name]:
                found.setdefault((setting, method, name), {})[seed] = float(line[name]) / (100 if name in POINTS else 1)
    return found


def gains(found: Values, method: str, point: str) -> dict[Setting, Difference]:
    """Return a method's differences to local-only training, paired by seed, in the settings that have both."""
    pairs = {each: (found.get((each, method, point), {}), found.get((each, LOCAL, point), {})) for each in settings()}
    return {each: gain for each, pair in pairs.items() if (gain := paired(*pair))}


def counted(found: Values) -> str:
    """Return in how many settings each method has a higher mean than local-only training, and is above or below it.

    Above and below are significant after Holm's correction over all settings. The last columns are mean differences by
    classes per client.
    """
    head = ["method minus local-only", "higher mean", "above", "below", "not significant"]
    table: list[list[Entry]] = [[*head, *(f"{said} classes" for said in PARTS)]]
    for method, (point, said) in product(METHODS[1:], POINTS.items()):
        own = gains(found, method, point)
        signs = [each.sign if each else 0 for each in holm(own).values()]
        numbers = [str(sum(each.mean > 0 for each in own.values())), *(str(signs.count(n)) for n in (1, -1, 0))]
        means = [
            signed(fmean(each.mean for each in part)) if (part := by_classes(own, place)) else ""
            for place in range(len(PARTS))
        ]
        table.append([f"{named(method)}, {said}", *numbers, *means])
    return drawn(table)


def by_classes(own: dict[Setting, Difference], place: int) -> list[Difference]:
    """Return the differences of the settings whose clients have the number of classes at a place of `PARTS`."""
    return [gain for each, gain in own.items() if counts(each.data)[place] == each.classes]


def changed(found: Values) -> str:
    """Return KT-pFL's gain, adapted, by the number of clients, the public set, and the architectures."""
    own = gains(found, "kt_pfl", "adapted")
    columns = [(data, k, f"{name}, {said}") for data, name in TITLES.items() for k, said in ((2, "two"), (0, "all"))]
    table: list[list[Entry]] = [["setting", *(name for _, _, name in columns)]]
    ways: dict[str, dict[str, Any]] = {"ten clients, public samples in-domain, one architecture": {}}
    ways |= {said: {"clients": number} for said, number in (("5 clients", FEW), ("20 clients (14 of digits)", 0))}
    ways |= {f"public samples {kind}": {"public": kind} for kind in ("near", "far")}
    for said, change in {**ways, "two architectures": {"architectures": 2}}.items():
        places = [Setting(data, SIZES[data][1], k or CLASSES[data])._replace(**change) for data, k, _ in columns]
        places = [each if each.clients else each._replace(clients=MANY[each.data]) for each in places]
        table.append([said, *(signed(own[place].mean) if place in own else "" for place in places)])
    return drawn(table)


def every(found: Values) -> str:
    """Return the table of all settings: local-only training, and the differences of all methods at both points."""
    shown = {(m, p): gains(found, m, p) for m in METHODS[1:] for p in POINTS}
    signs = {each: holm(own) for each, own in shown.items()}
    table: list[list[Entry]] = [
        ["setting", "local-only", *(f"{named(method)}, {POINTS[point]}" for method, point in shown)]
    ]
    for each in settings():
        local = list(found.get((each, LOCAL, "after_transfer"), {}).values())
        said = f"{TITLES[each.data]}, {each.samples} samples, {each.classes} classes, {each.clients} clients"
        said += f", public {each.public}" + ", two architectures" * (each.architectures == 2)
        table.append([said, percent(fmean(local)) if local else "", *(point(signs[of].get(each)) for of in shown)])
    return drawn(table)


def point(gain: Difference | None) -> Entry:
    """Return a difference without its interval, bold if it is significant."""
    return replace(signed(gain.mean), bold=gain.sign != 0) if gain else ""


def features(found: Values, setting: Setting) -> list[float]:
    """Return what is known before federated training: one exchange of predictions, sizes, classes, and clients."""
    shown = [fmean(found[setting, LOCAL, name].values()) for name in EXCHANGE]
    return [*shown, log(setting.samples), log(setting.clients), log(CLASSES[setting.data])]


def hits(found: Values) -> dict[Setting, bool]:
    """Return in which settings a logistic regression, fitted on the other datasets, tells the sign of KT-pFL's gain."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    own = gains(found, "kt_pfl", "adapted")
    x = {each: features(found, each) for each in own}
    y = {each: gain.mean > 0 for each, gain in own.items()}
    right: dict[Setting, bool] = {}
    for data in TITLES:
        theirs, rest = ([each for each in own if (each.data == data) == mine] for mine in (True, False))
        model = make_pipeline(StandardScaler(), LogisticRegression())
        model.fit([x[each] for each in rest], [y[each] for each in rest])
        told = model.predict([x[each] for each in theirs]).tolist()
        right |= {each: sign == y[each] for each, sign in zip(theirs, told, strict=True)}
    return right


def predicted(found: Values) -> str:
    """Return the share of correct predictions by the dataset that was left out."""
    own, right = gains(found, "kt_pfl", "adapted"), hits(found)
    table = [["dataset left out", "settings", "with a gain", "predicted correctly", "always no", "always yes"]]
    for name, data in [*((name, data) for data, name in TITLES.items()), ("all", "")]:
        part = [each for each in own if data in ("", each.data)]
        table.append([name, *rates([own[each].mean > 0 for each in part], [right[each] for each in part])])
    return drawn(table)


def answer(found: Values) -> str:
    """Return the page's answer: how often and by how much KT-pFL gains, and how well this is predicted."""
    own, right = gains(found, "kt_pfl", "adapted"), hits(found)
    said = [
        f"in {sum(each.mean > 0 for each in part)} of {len(part)} settings with {name} classes per client (mean "
        f"difference {signed(fmean(each.mean for each in part))} points)"
        for name, place in (("all", -1), ("two", 0))
        if (part := by_classes(own, place))
    ]
    better, worse = (
        sum(right[each] == hit and (gain.mean > 0) != hit for each, gain in own.items()) for hit in (True, False)
    )
    p = binomtest(better, better + worse).pvalue if better + worse else 1.0
    text = (
        f"KT-pFL, adapted, has a higher mean than local-only training {' and '.join(said)}; the first table says what "
        f"is significant. One exchange of predictions gives the right sign in {fmean(right.values()):.0%} of the "
        f"settings. This is {'' if p < 0.05 else 'not shown to be '}better than always answering yes, which is right "
        f"in {fmean(each.mean > 0 for each in own.values()):.0%} (exact test: p = {p:.2f})."
    ).replace("%", " %")
    return fill(f"**{text}**".replace(" %", "\u00a0%"), 150).replace("\u00a0", " ")


def answered(text: str, found: Values) -> str:
    """Return the text of the page with its answer, the first bold text, replaced."""
    return re.sub(r"(?s)\*\*.*?\*\*", lambda _: answer(found), text, count=1)


def rates(signs: list[bool], hits: list[bool]) -> list[str]:
    """Return the numbers of settings and of gains, and the shares of correct answers of the model and of constants."""
    yes = fmean(signs)
    return [str(len(signs)), str(sum(signs)), *(f"{100 * each:.0f} %" for each in (fmean(hits), 1 - yes, yes))]


@styled
def picture(found: Values) -> Figure:
    """Draw KT-pFL's gain over local-only training, adapted, by samples and classes per client, a panel per dataset."""
    figure, panels = grid_of_panels(list(TITLES.values()), across=2, height=1.9, wrap=40)
    own = gains(found, "kt_pfl", "adapted")
    signs = holm(own)
    for axes, data in zip(panels, TITLES, strict=True):
        grid = np.full((3, 3), np.nan)
        for row, n in enumerate(SIZES[data]):
            for column, k in enumerate(counts(data)):
                if (gain := own.get(place := Setting(data, n, k))) is None:
                    continue
                grid[row, column] = 100 * gain.mean
                strong = "bold" if (tested := signs[place]) and tested.sign else "normal"
                axes.text(column, row, str(signed(gain.mean)), ha="center", va="center", weight=strong, color=INK)
        axes.imshow(grid, cmap="RdBu", vmin=-10, vmax=10, aspect="auto", alpha=0.7)
        axes.set_xticks(range(3), [str(k) for k in counts(data)])
        axes.set_yticks(range(3), [str(n) for n in SIZES[data]])
        axes.set_xlabel("classes per client", fontsize=8)
        axes.set_ylabel("samples per client", fontsize=8)
    return figure


ABOVE = """# All settings of the map

Differences to local-only training in percentage points. **Bold**: significant after Holm's correction over the column.
Written by `python benchmarks/map.py page`.

"""


TABLES = {"How often it pays": counted, "What else matters": changed, "Can it be predicted?": predicted}
"""The tables of the page by heading."""


def page() -> None:
    found = values(read(STUDY.kept))
    tables = {f"## {heading}\n": table(found) for heading, table in TABLES.items()}
    PAGE.write_text(answered(replaced(PAGE.read_text("utf-8"), tables), found), "utf-8")
    EVERY.write_text(f"{ABOVE}{every(found)}\n", "utf-8")
    picture(found).savefig(FIGURE, dpi=200)


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        STUDY.run(wanted())
    elif sys.argv[1:] == ["page"]:
        page()
    else:
        raise SystemExit(__doc__)
