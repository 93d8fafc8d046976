"""Numbers that others published, next to ours in the same setting; `conf/external` has the settings.

    python benchmarks/external.py run [SETTING,SETTING]   runs compare_<setting> of each setting and keeps its runs
    python benchmarks/external.py table                   writes docs/results/external.md from the kept runs

``make external`` calls both. A repeated `run` continues stopped runs. The data are made from the sources' files in the
folder KTPFL_REAL_DATA, or in data/01_raw. A rule says which number of a run a source reports: ``last``, the last
round; ``best``, the best round on test samples, which cannot be known without test labels. Ours is the mean of the last
five evaluations. A mean over clients may have equal weights, or the numbers of test samples as weights.
"""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import yaml
from measure import RAW, RESULTS, ROOT
from studies import drawn, named, write

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, holm, paired, std_over_seeds
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, LAST
from ktpfl_pipeline.reports.numbers import Entry, Number, interval

KEPT, PAGE = RESULTS / "external", ROOT / "docs" / "results" / "external.md"
LOCAL = "local"
CATEGORIES = ["chest_pain", "resting_ecg"]
"""The columns of FLamby's patients that are coded by one feature per value, without the first value."""


def heart(file: Path) -> None:
    """Write FLamby's patients as arrays: 13 features, standardized by the training patients of each hospital."""
    table = pd.read_csv(RAW / "heart_disease.csv")
    hospitals, train = table["hospital"], table["split"] == "train"
    features = pd.get_dummies(table.drop(columns=["hospital", "disease", "split"]), columns=CATEGORIES, drop_first=True)
    features = features.astype(float)
    of_training = features[train].groupby(hospitals[train])
    mean, std = (found.loc[hospitals].to_numpy() for found in (of_training.mean(), of_training.std()))
    scaled = (features.to_numpy() - mean) / np.where(std > 0, std, 1.0)
    order = hospitals.unique().tolist()
    np.savez_compressed(
        file,
        features=scaled.astype(np.float32),
        labels=table["disease"].to_numpy(),
        clients=np.array([order.index(hospital) for hospital in hospitals]),
        test=~train.to_numpy(),
    )


def images(name: str) -> Callable[[Path], None]:
    """Return the function that copies images and labels from a file, without its clients."""

    def write(file: Path) -> None:
        stored = np.load(RAW / name)
        np.savez_compressed(file, images=stored["images"], labels=stored["labels"])

    return write


DATA: dict[str, Callable[[Path], None]] = {
    "flamby_heart.npz": heart,
    "all_mnist.npz": images("mnist_20_clients.npz"),
}
"""The function that writes each file below data/01_raw."""


def run(only: str = "") -> None:
    """Run and keep the settings `only`, or all of them."""
    chosen = only.split(",") if only else list(cells_by_setting())
    sections = yaml.safe_load((ROOT / "conf" / "external" / "parameters_external.yml").read_text("utf-8"))
    for file in {sections[setting]["private"]["source"].removeprefix("npz:") for setting in chosen}:
        if not (place := ROOT / "data" / "01_raw" / file).exists():
            DATA[file](place)
    for setting in chosen:
        command = [sys.executable, "-m", "kedro", "run", "--env=external", f"--pipelines=compare_{setting}"]
        subprocess.run(command, cwd=ROOT, check=True)
        keep(setting)


def keep(setting: str) -> None:
    """Keep each client's test accuracy in every evaluated round, one row per run and client."""
    made = pd.read_csv(ROOT / "data" / "03_primary" / setting / "partition.csv")
    tested = made[made["split"] == "test"].groupby(["seed", "client"]).size()
    files = sorted((ROOT / "data" / "07_model_output" / setting).glob("*/result.json"))
    runs = [run for file in files for run in MethodResult.from_dict(json.loads(file.read_text("utf-8"))).runs]
    rows = [row for run in runs for row in rows_of(run, tested)]
    with (KEPT / f"{setting}.csv").open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def rows_of(run: FinishedRun, tested: "pd.Series[int]") -> Iterator[dict[str, Any]]:
    """Yield one row per client: its number of test samples, and its accuracies by round, in percent."""
    for place, client in enumerate(run.client_ids):
        values = [f"{100 * record.accuracy[AFTER_TRANSFER][place]:.2f}" for record in run.evaluated]
        yield {
            "method": run.method,
            "seed": run.seed,
            "client": client,
            "test_samples": int(tested[run.seed, client]),
            "accuracies": " ".join(values),
        }


RULES: dict[str, Callable[[list[float]], float]] = {
    "last": lambda values: values[-1],
    "best": max,
    "ours": lambda values: fmean(values[-LAST:]),
}


class Kept:
    """The kept runs of one setting."""

    def __init__(self, setting: str) -> None:
        """Read them; there are none if the file is missing."""
        file = KEPT / f"{setting}.csv"
        self.rows = pd.read_csv(file, dtype={"accuracies": str}) if file.exists() else pd.DataFrame({"method": []})

    def by_seed(self, method: str, rule: str, client: str = "", mean: str = "clients") -> dict[int, float]:
        """Return a method's accuracy by seed in percent, by a rule: that of one client, or the mean over clients.

        With the mean over ``samples``, clients have their numbers of test samples as weights.
        """
        found = self.rows[self.rows["method"] == method]
        if client:
            found = found[found["client"] == int(client)]
        means = {
            int(str(seed)): np.average(
                [[*map(float, row.split())] for row in own["accuracies"]],
                axis=0,
                weights=own["test_samples"] if mean == "samples" else None,
            ).tolist()
            for seed, own in found.groupby("seed")
        }
        return {seed: RULES[rule](values) for seed, values in means.items()}


def cells() -> list[dict[str, str]]:
    """Return the published cells."""
    with (KEPT / "published.csv").open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def cells_by_setting() -> dict[str, list[dict[str, str]]]:
    """Return the published cells of each setting."""
    found: dict[str, list[dict[str, str]]] = {}
    for cell in cells():
        found.setdefault(cell["setting"], []).append(cell)
    return found


def settings() -> list[str]:
    """Return the names of the settings with kept runs."""
    return [name for name in cells_by_setting() if (KEPT / f"{name}.csv").exists()]


def within(cell: dict[str, str], ours: float) -> bool:
    """Return whether our value is within one point, or two published standard deviations, of the published one."""
    return abs(ours - float(cell["published"])) <= max(1.0, 2 * float(cell["sd"] or 0)) + 1e-9


def value(values: dict[int, float]) -> Number | None:
    """Return the mean over seeds ± its standard deviation."""
    known = list(values.values())
    return Number(fmean(known), "{:.1f}".format, std_over_seeds(known)) if known else None


def comparison(setting: str) -> str:
    """Return the table of one setting: published, ours by their rule and by ours, and the gain over local-only."""
    kept, lines = Kept(setting), list[list[Entry]]()
    own = cells_by_setting()[setting]
    mean = own[0]["mean"]
    methods = dict.fromkeys(cell["method"] for cell in own if not cell["client"] and cell["method"] != LOCAL)
    local = kept.by_seed(LOCAL, "ours", mean=mean)
    gains: dict[str, Difference | None] = {
        name: paired(*({seed: each / 100 for seed, each in values.items()} for values in (found, local)))
        for name in methods
        if (found := kept.by_seed(name, "ours", mean=mean))
    }
    corrected = holm(gains)
    for cell in own:
        by_rule, by_ours = (kept.by_seed(cell["method"], rule, cell["client"], mean) for rule in (cell["rule"], "ours"))
        reached = fmean(by_rule.values()) if by_rule else None
        published = Number(float(cell["published"]), "{:.1f}".format, float(cell["sd"]) if cell["sd"] else None)
        where = f", client {cell['client']}" if cell["client"] else ""
        equal = "not run" if reached is None else "yes" if within(cell, reached) else "**no**"
        gain = interval(corrected.get(cell["method"])) if not cell["client"] else None
        lines.append(
            [
                named(cell["method"]) + where,
                published,
                value(by_rule),
                equal,
                value(by_ours),
                gain,
            ]
        )
    head: list[Entry] = ["method", "published", "ours, their rule", "equal", "ours, our rule", "minus local-only"]
    return drawn([head, *lines])


def table() -> None:
    """Write the table of every setting below its heading."""
    write(PAGE, {f"## `{setting}`\n": comparison(setting) for setting in settings()})


COMMANDS: dict[str, Callable[..., None]] = {"run": run, "table": table}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
