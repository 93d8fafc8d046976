"""What converged clients gain if each keeps the better of two models by its validation samples.

    python benchmarks/choices.py run                                  all settings of converged.py, two hours
    python benchmarks/choices.py run kt_pfl,fedmd 0,1,2 CIFAR-10      some methods next to local-only training, these
                                                                      seeds, one dataset
    python benchmarks/choices.py page                                 the tables of both pages of converged.py

The clients, data and rounds are those of converged.py, whose rows hold no validation accuracies. `run` can be stopped
at any time: runs are continued from checkpoints in build/choices. It prints the rows, and replaces those of the same
methods and settings in benchmarks/results/choices.csv. Accuracies are fractions of 1.
"""

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import fmean

import torch
from converged import CLIENTS, DATA, EVERY, METHODS, PAGE, PARTITIONS, PARTS, ROUNDS, federation_of
from measure import RESULTS, ROOT
from studies import LOCAL, Rows, Tables, drawn, named, overwrite, read, write

from ktpfl_pipeline import in_memory
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.decisions import RELEVANT
from ktpfl_pipeline.core.metrics import AFTER_TRANSFER, CHOSEN
from ktpfl_pipeline.core.settings import Choice
from ktpfl_pipeline.reports.numbers import Entry, signed

KEPT, UNFINISHED = RESULTS / "choices.csv", ROOT / "build" / "choices"
HEADING, WHEN = "## The choice of each client\n", ("before", "after")
COMPARED = [name for name in METHODS if name not in {LOCAL, *PARTS}]


def rows(comparison: Comparison) -> Rows:
    """Return one row per method except local-only: gains and the share of losers before and after the choice."""
    found = []
    for result in comparison.ranked():
        if (choices := comparison.choices(result)) is None or result is comparison.local:
            continue
        row = {"method": result.method, "seeds": " ".join(map(str, result.seeds))}
        for when, point in (("before", AFTER_TRANSFER), ("after", CHOSEN)):
            gain = comparison.gains(point)[result.method]
            assert gain is not None
            losing = fmean(comparison.worse_off(result, point, RELEVANT))
            row |= {f"gain_{when}": f"{gain.mean:.4f}", f"losing_{when}": f"{losing:.4f}"}
        counts = {"judged": choices.judged, "right": choices.right, "better": choices.better}
        keeping = f"{fmean(choices.keeping) / CLIENTS:.4f}"
        found.append({**row, "keeping": keeping, **{name: str(count) for name, count in counts.items()}})
    return found


def shares(rows: Rows) -> list[Entry]:
    """Return means over rows in percent: losers before and after the choice, clients that keep the model, and right."""
    losing = [fmean(float(row[f"losing_{when}"]) for row in rows) for when in WHEN]
    right = sum(int(row["right"]) for row in rows) / sum(int(row["judged"]) for row in rows)
    return [f"{100 * share:.0f}" for share in (*losing, fmean(float(row["keeping"]) for row in rows), right)]


SHARES: list[Entry] = ["losers", "losers, chosen", "keep", "right"]


def by_setting(kept: Rows) -> str:
    """Return one row per setting and method, each setting named once: mean gains over local-only training, shares."""
    lines, above = [["setting", "method", "gain", "gain, chosen", *SHARES]], ""
    for row in kept:
        gains = [signed(float(row[f"gain_{when}"])) for when in WHEN]
        setting = f"{row['data']}, {row['partition']}"
        lines.append([setting if setting != above else "", named(row["method"]), *gains, *shares([row])])
        above = setting
    return drawn(lines)


def by_method(kept: Rows) -> str:
    """Return one row per method, highest mean gain first: means over the settings, and the lowest gains."""
    lines: list[list[Entry]] = [["method", "gain", "gain, chosen", "lowest", "lowest, chosen", *SHARES]]
    rows = {row["method"]: [each for each in kept if each["method"] == row["method"]] for row in kept}
    before, after = ({name: [float(row[f"gain_{when}"]) for row in own] for name, own in rows.items()} for when in WHEN)
    for name in sorted(rows, key=lambda name: -fmean(before[name])):
        values = [of(gains[name]) for of in (fmean, min) for gains in (before, after)]
        lines.append([named(name), *map(signed, values), *shares(rows[name])])
    return drawn(lines)


def tables() -> dict[Path, Tables]:
    kept = read(KEPT)
    return {PAGE: {HEADING: by_method(kept)}, EVERY: {HEADING: by_setting(kept)}}


def page() -> None:
    for file, headed in tables().items():
        write(file, headed)


def merged(kept: Rows, new: Rows) -> Rows:
    """Return the kept rows with the new ones, which replace those of the same method, data and partition, in order."""
    by_key = {(row["data"], row["partition"], row["method"]): row for row in (*kept, *new)}
    settings = list(product(DATA, PARTITIONS))

    def place(row: Mapping[str, str]) -> tuple[int, float]:
        return settings.index((row["data"], row["partition"])), -float(row["gain_before"])

    return sorted(by_key.values(), key=place)


def run(names: str = ",".join(COMPARED), seeds: str = "0,1,2", data: str = ",".join(DATA)) -> None:
    torch.set_num_threads(1)
    for private, partition in product(data.split(","), PARTITIONS):
        federations = [federation_of(private, partition, seed) for seed in map(int, seeds.split(","))]
        place = UNFINISHED / private / partition
        results = [
            in_memory.run(name, *federations, rounds=ROUNDS, checkpoints=place) for name in (LOCAL, *names.split(","))
        ]
        comparison = Comparison(results).under(evaluation={"choice": vars(Choice())})
        found: Rows = [{"data": private, "partition": partition, **row} for row in rows(comparison)]
        print(*(" ".join(row.values()) for row in found), sep="\n", flush=True)
        overwrite(KEPT, merged(read(KEPT), found))


if __name__ == "__main__":
    {"run": run, "page": page}[sys.argv[1]](*sys.argv[2:])
