"""Numbers that others published, next to ours in the same setting; `conf/external` has the settings.

    python benchmarks/external.py run [SETTING,SETTING]   runs the methods of each setting and keeps the runs
    python benchmarks/external.py table                   writes docs/results/external.md from the kept runs

``make external`` calls both. A repeated `run` continues stopped runs. The data are made from the sources' files in the
folder KTPFL_REAL_DATA, or in data/01_raw. A rule says which number of a run a source reports: ``last``, the last
round; ``best``, the best round on test samples, which cannot be known without test labels. Ours is the mean of the last
five evaluations. A mean over clients may have equal weights, or the numbers of test samples as weights.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import yaml
from measure import RAW, RESULTS, ROOT
from studies import LOCAL, Rows, drawn, named, overwrite, read, write

from ktpfl_pipeline.analysis.results import FinishedRun, MethodResult
from ktpfl_pipeline.analysis.statistics import Difference, holm, paired, std_over_seeds
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, LAST
from ktpfl_pipeline.reports.numbers import Entry, Number, interval, signed

KEPT, PAGE = RESULTS / "external", ROOT / "docs" / "results" / "external.md"
BASELINES = (LOCAL, "local_matched", "local_5x")
"""Training without exchange, which tables show even if no source has published it."""
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


def pfedme_clients(file: Path) -> None:
    """Write pFedMe's 20 clients of two classes, with the sizes that its `generate_niid_20users.py` draws.

    Pixels have mean 0 and standard deviation 1 over all images.
    """
    stored = np.load(RAW / "mnist_20_clients.npz")
    pixels = stored["images"].reshape(len(stored["labels"]), -1).astype(np.float32)
    scaled = (pixels - pixels.mean(axis=0)) / (pixels.std(axis=0) + 0.001)
    of_class = [np.flatnonzero(stored["labels"] == label) for label in range(10)]
    draw, used = np.random.RandomState(1), [0] * 10
    sizes = np.stack([shrinking(draw, len(of_class[label]), 20) for label in (0, 1)], axis=1).tolist()
    chosen, clients = list[int](), list[int]()
    for client, label, size in ((n, (n + j) % 10, sizes[n][j]) for n in range(20) for j in range(2)):
        end = used[label] + size
        if end < len(of_class[label]):
            chosen += of_class[label][used[label] : end].tolist()
            clients += [client] * size
            used[label] = end
    np.savez_compressed(file, features=scaled[chosen], labels=stored["labels"][chosen], clients=np.array(clients))


def shrinking(draw: np.random.RandomState, total: int, parts: int) -> list[int]:
    """Divide a number into parts as pFedMe does: each takes up to half of what is left, and the last one the rest."""
    sizes = list[int]()
    for _ in range(parts - 1):
        left = total - sum(sizes)
        sizes.append(draw.randint(left // (parts + 1), left // 2))
    return [*sizes, total - sum(sizes)]


DATA: dict[str, Callable[[Path], None]] = {
    "flamby_heart.npz": heart,
    "all_mnist.npz": images("mnist_20_clients.npz"),
    "all_fashion_mnist.npz": images("fashion_mnist_full.npz"),
    "pfedme_mnist.npz": pfedme_clients,
}
"""The function that writes each file below data/01_raw."""


def run(only: str = "") -> None:
    """Run and keep the settings `only`, or all of them. A setting runs the methods of its `compare` and no others."""
    sections = yaml.safe_load((ROOT / "conf" / "external" / "parameters_external.yml").read_text("utf-8"))
    for setting in only.split(",") if only else cells_by_setting():
        file = sections[setting]["private"]["source"].removeprefix("npz:")
        if not (place := ROOT / "data" / "01_raw" / file).exists():
            DATA[file](place)
        boxes = ",".join(["data", *(f"methods.{method}" for method in sections[setting]["compare"])])
        command = [sys.executable, "-m", "kedro", "run", "--env=external", f"--pipelines=compare_{setting}"]
        subprocess.run([*command, f"--namespaces={boxes}"], cwd=ROOT, check=True)
        keep(setting)


def keep(setting: str) -> None:
    """Keep the test accuracy in every evaluated round: that of each client if a cell names one, else the mean."""
    cells = cells_by_setting()[setting]
    files = sorted((ROOT / "data" / "07_model_output" / setting).glob("*/result.json"))
    runs = [run for file in files for run in MethodResult.from_dict(json.loads(file.read_text("utf-8"))).runs]
    mean = "" if any(cell["client"] for cell in cells) else cells[0]["mean"]
    overwrite(KEPT / f"{setting}.csv", [row for run in runs for row in rows_of(run, mean)])


def rows_of(run: FinishedRun, mean: str) -> Iterator[dict[str, Any]]:
    """Yield accuracies by round in percent: a row per client, or one with their `mean` over clients or samples."""
    sizes = run.samples["test"]
    values = 100 * np.array([record.accuracy[AFTER_TRANSFER] for record in run.evaluated])  # (rounds, clients)
    rows: Iterator[tuple[Any, int, Any]] = zip(run.client_ids, sizes, values.T, strict=True)
    if mean:
        weights = sizes if mean == "samples" else None
        rows = iter([("", sum(sizes), np.average(values, axis=1, weights=weights))])
    for client, size, found in rows:
        about = {"method": run.method, "seed": run.seed, "client": client, "test_samples": size}
        yield {**about, "accuracies": " ".join(f"{each:.2f}" for each in found)}


RULES: dict[str, Callable[[list[float]], float]] = {
    "last": lambda values: values[-1],
    "best": max,
    "ours": lambda values: fmean(values[-LAST:]),
}


class Kept:
    """The kept runs of one setting; there are none if the file is missing."""

    def __init__(self, setting: str) -> None:
        self.rows = read(KEPT / f"{setting}.csv")

    def by_seed(self, method: str, rule: str, client: str = "", mean: str = "clients") -> dict[int, float]:
        """Return a method's accuracy by seed in percent, by a rule: that of one client, or the mean over clients.

        With the mean over ``samples``, clients have their numbers of test samples as weights.
        """
        found: dict[int, Rows] = {}
        for row in self.rows:
            if row["method"] == method and client in ("", row["client"]):
                found.setdefault(int(row["seed"]), []).append(row)
        means = {
            seed: np.average(
                [[*map(float, row["accuracies"].split())] for row in own],
                axis=0,
                weights=[int(row["test_samples"]) for row in own] if mean == "samples" else None,
            ).tolist()
            for seed, own in sorted(found.items())
        }
        return {seed: RULES[rule](values) for seed, values in means.items()}


def cells_by_setting() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for cell in read(KEPT / "published.csv"):
        found.setdefault(cell["setting"], []).append(cell)
    return found


def settings_by_source() -> dict[str, list[str]]:
    """Return the settings with kept runs of each source. A setting belongs to the source of its first cell."""
    found: dict[str, list[str]] = {}
    for setting, cells in cells_by_setting().items():
        if (KEPT / f"{setting}.csv").exists():
            found.setdefault(project(cells[0]), []).append(setting)
    return found


def within(cell: dict[str, str], ours: float) -> bool:
    """Return whether our value is within one point, or two published standard deviations, of the published one."""
    return abs(ours - float(cell["published"])) <= max(1.0, 2 * float(cell["sd"] or 0)) + 1e-9


def value(values: dict[int, float]) -> Number | None:
    """Return the mean over seeds ± its standard deviation."""
    known = list(values.values())
    return Number(fmean(known), "{:.1f}".format, std_over_seeds(known)) if known else None


def gains(source: str) -> dict[tuple[str, str], Difference | None]:
    """Return our gains over local-only training by our rule, by setting and method.

    They are paired by seed, and corrected together for all published methods of the source's settings.
    """
    found: dict[tuple[str, str], Difference | None] = {}
    for setting in settings_by_source()[source]:
        kept, own = Kept(setting), cells_by_setting()[setting]
        for method in dict.fromkeys(cell["method"] for cell in own if not cell["client"]):
            pair = [kept.by_seed(each, "ours", mean=own[0]["mean"]) for each in (method, LOCAL)]
            if method != LOCAL and all(pair):
                ours, local = ({seed: each / 100 for seed, each in values.items()} for values in pair)
                found[setting, method] = paired(ours, local)
    return holm(found)


def comparison(source: str) -> str:
    """Return the table of one source: published and ours by both rules, and the gains over local-only training.

    The name of a setting is a row of its own above its methods.
    """
    head: list[Entry] = ["method", "published", "ours, their rule", "equal", "ours, our rule"]
    corrected, lines = gains(source), [[*head, "published gain", "our gain"]]
    for setting in settings_by_source()[source]:
        own = {method: gain for (place, method), gain in corrected.items() if place == setting}
        lines += [[setting, *[""] * (len(lines[0]) - 1)], *lines_of(setting, own)]
    table = drawn(lines)
    for setting in settings_by_source()[source]:  # a long name may break in a narrow column
        table = table.replace(f"| {setting} |", f"| {setting.replace('_', '_<wbr>')} |")
    return table


def lines_of(setting: str, corrected: Mapping[str, Difference | None]) -> list[list[Entry]]:
    """Return a line per published number of a setting, and per baseline.

    The published gain is the published number minus our local-only training by the same rule.
    """
    kept, own = Kept(setting), cells_by_setting()[setting]
    mean, rule, lines = own[0]["mean"], own[0]["rule"], list[list[Entry]]()
    for cell in own:
        by_rule = kept.by_seed(cell["method"], cell["rule"], cell["client"], mean)
        local = kept.by_seed(LOCAL, cell["rule"], cell["client"], mean) if cell["method"] != LOCAL else {}
        published = float(cell["published"])
        lines.append(
            [
                label(cell, own),
                Number(published, "{:.1f}".format, float(cell["sd"]) if cell["sd"] else None),
                value(by_rule),
                "not run" if not by_rule else "yes" if within(cell, fmean(by_rule.values())) else "no",
                value(kept.by_seed(cell["method"], "ours", cell["client"], mean)),
                signed((published - fmean(local.values())) / 100) if local else None,
                interval(corrected.get(cell["method"])) if not cell["client"] else None,
            ]
        )
    for name in BASELINES:
        found = [value(kept.by_seed(name, each, mean=mean)) for each in (rule, "ours")]
        if all(found) and name not in {cell["method"] for cell in own}:
            lines.append([named(name), None, found[0], None, found[1], None, None])
    return lines


def label(cell: dict[str, str], own: list[dict[str, str]]) -> str:
    """Return the name of a cell's row, with what distinguishes it from the other cells of the method."""
    text = named(cell["method"]) + f", client {cell['client']}" * bool(cell["client"])
    same = [each for each in own if each["method"] == cell["method"] and each["client"] == cell["client"]]
    for column, words in (("rule", f", {cell['rule']} round"), ("source", f" ({project(cell)})")):
        text += words * (len({each[column] for each in same}) > 1)
    return text


def project(cell: dict[str, str]) -> str:
    """Return the name of the project or paper that published a cell."""
    return cell["source"].partition(",")[0]


def counts() -> str:
    """Return the table of all published cells by source: how many are run, equal, and how many gain over local-only."""
    corrected = {place: gain for source in settings_by_source() for place, gain in gains(source).items()}
    rows: dict[str, list[int]] = {}
    for setting, cells in cells_by_setting().items():
        kept = Kept(setting)
        for cell in cells:
            row = rows.setdefault(project(cell), [0] * 7)
            mean, rule, method = cell["mean"], cell["rule"], cell["method"]
            ours, local = (kept.by_seed(each, rule, cell["client"], mean) for each in (method, LOCAL))
            row[0] += 1
            row[1] += bool(ours)
            row[2] += bool(ours) and within(cell, fmean(ours.values()))
            if not ours or method == LOCAL or cell["client"] or not local:
                continue
            row[3] += 1
            row[4] += float(cell["published"]) > fmean(local.values())
            if gain := corrected.get((setting, method)):
                row[5] += gain.sign > 0
                row[6] += gain.sign < 0
    head: list[Entry] = ["source", "cells", "run", "equal", "with local-only", "published above"]
    head += ["ours above", "ours below"]
    lines = [[source, *map(str, row)] for source, row in rows.items()]
    total = [str(sum(column)) for column in zip(*rows.values(), strict=True)]
    return drawn([head, *lines, ["all", *total]])


def tables() -> dict[str, str]:
    return {"## Counts\n": counts(), **{f"## {source}\n": comparison(source) for source in settings_by_source()}}


def table() -> None:
    write(PAGE, tables())


COMMANDS: dict[str, Callable[..., None]] = {"run": run, "table": table}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
