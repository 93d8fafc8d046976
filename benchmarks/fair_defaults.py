"""Defaults of methods before and after a correction, and the common dimension of features, on small federations.

    python benchmarks/fair_defaults.py run dimension          the group's runs missing from build/fair_defaults.jsonl
    python benchmarks/fair_defaults.py run apfl digits 3,4    one group of candidates, one dataset, two seeds
    python benchmarks/fair_defaults.py table                  prints the tables in Markdown

The datasets are digits, and Fashion-MNIST as an npz file in the folder KTPFL_REAL_DATA, or in data/01_raw without this
variable. No comparison in docs uses these seeds. Finished runs are not repeated.
"""

import json
import sys
from contextlib import closing
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from measure import RAW, ROOT

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.in_memory import federation
from ktpfl_pipeline.methods import METHODS, create

KEPT = ROOT / "build" / "fair_defaults.jsonl"
SEEDS, ROUNDS, CLIENTS, LAST = (300, 301, 302), 6, 8, 2
PARTITIONS: dict[str, Any] = {"two labels": "two_labels", "Dirichlet 0.3": {"scheme": "dirichlet", "alpha": 0.3}}
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"source": "digits", "private": {"samples": 900}, "training": {"epochs": 2}},
    "fashion_mnist": {
        "source": f"npz:{RAW}/fashion_mnist.npz",
        "public": {"source": f"npz:{RAW}/mnist.npz", "batch": 150},
        "private": {"samples": 900},
        "training": {"epochs": 2},
    },
}
DIMENSIONS = (64, 128, 256, 512)
GROUPS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "dimension": {
        f"{name}, {dimension}": (name, {"dimension": dimension})
        for name in ("lg_fedavg", "fedgh", "fedgen", "fedproto")
        for dimension in DIMENSIONS
    },
    "dimension of two models": {
        f"{name}, {dimension}": (name, {"dimension": dimension})
        for name in ("fedtgp", "fedkd", "fedmrl")
        for dimension in (64, 512)
    },
    "fedkd": {
        "fedkd, summed KL": ("fedkd", {"divergence_weight": 1.0}),
        "fedkd, mean KL": ("fedkd", {"divergence_weight": None}),
    },
    "comet": {f"comet, {share} N": ("comet", {"share": share}) for share in (0.25, 0.5, 0.75)},
    "apfl": {
        "apfl, 0.5 and rate": ("apfl", {"alpha": 0.5, "alpha_rate": None}),
        "apfl, 0.25": ("apfl", {"alpha": 0.25, "alpha_rate": 0.0}),
        "apfl, 0.5": ("apfl", {"alpha": 0.5, "alpha_rate": 0.0}),
        "fedavg": ("fedavg", {}),
        "local (one architecture)": ("local", {}),
    },
    "pfedgraph": {
        f"pfedgraph, {report}": ("pfedgraph", {"report": report}) for report in ("before", "after", "validation")
    },
    "local": {"local": ("local", {}), "kt_pfl": ("kt_pfl", {})},
}
ONE_ARCHITECTURE = ("apfl", "pfedgraph")
"""Groups whose clients have one architecture."""


def main() -> None:
    """Run the missing runs, or print the tables."""
    if sys.argv[1:2] == ["table"]:
        print(tables([json.loads(line) for line in KEPT.read_text().splitlines()]))
        return
    _, _, group, *rest = sys.argv
    dataset, seeds = [*rest, "", ""][:2]
    for seed in map(int, seeds.split(",")) if seeds else SEEDS:
        for source in [dataset] if dataset else DATASETS:
            for partition in PARTITIONS:
                run(group, source, partition, seed)


def run(group: str, source: str, partition: str, seed: int) -> None:
    """Run a group's candidates on one federation, and keep the accuracy after transfer."""
    KEPT.parent.mkdir(exist_ok=True)
    done = {tuple(json.loads(line)["key"]) for line in KEPT.read_text().splitlines()} if KEPT.exists() else set()
    missing = {
        label: made for label, made in GROUPS[group].items() if (group, label, source, partition, seed) not in done
    }
    if not missing:
        return
    fed = made_federation(group, source, partition, seed)
    with closing(fed.executor):
        for label, (name, values) in missing.items():
            line: dict[str, Any] = {"key": [group, label, source, partition, seed], "final": final(fed, name, values)}
            with KEPT.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(*line["key"], f"{line['final']:.3f}", flush=True)


def made_federation(group: str, source: str, partition: str, seed: int) -> Federation:
    """Return the federation of a group's candidates."""
    settings = {key: value for key, value in DATASETS[source].items() if key != "source"}
    architectures = ("cnn",) if group in ONE_ARCHITECTURE else ("lenet", "cnn", "cnn_bn", "mlp")
    return federation(
        DATASETS[source]["source"],
        clients=CLIENTS,
        architectures=list(architectures),
        partition=PARTITIONS[partition],
        seed=seed,
        **settings,
    )


def final(fed: Federation, name: str, values: dict[str, Any]) -> float:
    """Return the mean accuracy of the last evaluations."""
    common = {"common": "lenet"} if "common" in METHODS[name].kind.__dataclass_fields__ else {}
    method = create(name, {**common, **values})
    history = engine.run(method, replace(fed, rounds=ROUNDS), engine.Schedule(ROUNDS)).history[-LAST:]
    return fmean(fmean(record.accuracy["after_transfer"]) for record in history)


def tables(lines: list[dict[str, Any]]) -> str:
    """Return a Markdown table of each group: mean and standard deviation over seeds, in percent."""
    found: list[str] = []
    for group in GROUPS:
        own = [line for line in lines if line["key"][0] == group]
        columns = sorted({tuple(line["key"][2:4]) for line in own})
        if not own:
            continue
        found += [f"## {group}", "", f"| candidate | {' | '.join(', '.join(column) for column in columns)} |"]
        found += ["| --- |" + " --- |" * len(columns)]
        for label in dict.fromkeys(line["key"][1] for line in own):
            cells = []
            for column in columns:
                cells.append(cell([x["final"] for x in own if x["key"][1:4] == [label, *column]]))
            found.append(f"| {label} | {' | '.join(cells)} |")
        found.append("")
    return "\n".join(found)


def cell(values: list[float]) -> str:
    """Return a mean in percent, with the standard deviation over seeds if there are several."""
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.1f}{spread}" if values else "-"


if __name__ == "__main__":
    main()
