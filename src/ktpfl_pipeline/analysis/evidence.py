"""Finished runs of the paper's tables as small data files, from which every table and figure can be drawn again.

`save` writes three files into a folder, and `load` reads them; neither needs any image:

- ``cells.json``: the scale, the parts, and each cell with its settings and the keys of its runs.
- ``runs.csv.gz``: one row per run. It has key, method, seed, architectures, samples, bytes and seconds over all rounds.
- ``evaluations.csv.gz``: one row per run, client and evaluated round, with the accuracy (0..1) at each point.

Losses, coefficient matrices and measures other than accuracy are not kept. Equal content gives equal bytes.
"""

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import LEDGERS, RoundRecord

CELLS, RUNS, EVALUATIONS = "cells.json", "runs.csv.gz", "evaluations.csv.gz"
DIGITS = 6
"""Decimal digits of an accuracy: more than one sample among a million."""


@dataclass(frozen=True)
class Evidence:
    """The finished results of the paper's tables at one scale.

    Attributes:
        scale: what the report says of the settings.
        parts: of each table and figure its title, and how it is shown.
        cells: of these, with their finished runs.
    """

    scale: str
    parts: Mapping[str, tuple[str, str]]
    cells: Sequence[Cell]


def merged(old: Evidence, new: Evidence) -> Evidence:
    """Return the newer evidence, completed by older cells that it lacks or that have more finished runs."""
    mine = {_place(cell): cell for cell in new.cells}
    theirs = {_place(cell): cell for cell in old.cells}
    kept = {
        place: theirs[place] if place in theirs and len(theirs[place].runs) > len(cell.runs) else cell
        for place, cell in mine.items()
    }
    parts = {**new.parts, **{name: part for name, part in old.parts.items() if name not in new.parts}}
    others = [cell for place, cell in theirs.items() if place not in mine]
    order = list(parts)
    cells = sorted([*kept.values(), *others], key=lambda cell: order.index(cell.part))
    return Evidence(new.scale, parts, cells)


def save(evidence: Evidence, folder: Path) -> None:
    """Write the files into a folder, which is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: list[dict[str, Any]] = []
    for cell in evidence.cells:
        if cell.settings not in settings:
            settings.append(cell.settings)
    plain = ("part", "experiment", "label", "method", "hyperparameters", "seeds", "keys", "failed", "samples")
    content = {
        "scale": evidence.scale,
        "parts": evidence.parts,
        "settings": settings,
        "cells": [
            {name: getattr(cell, name) for name in plain} | {"settings": settings.index(cell.settings)}
            for cell in evidence.cells
        ],
    }
    (folder / CELLS).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    runs = {run.key: run for cell in evidence.cells for run in cell.runs}
    ordered = [runs[key] for key in sorted(runs)]
    _put(folder / RUNS, [_row(run) for run in ordered])
    _put(folder / EVALUATIONS, [row for run in ordered for row in _evaluations(run)])


def load(folder: Path) -> Evidence:
    """Return what `save` wrote.

    Raises:
        InputError: if a file is missing or does not read as one of these.
    """
    try:
        content = json.loads((folder / CELLS).read_text(encoding="utf-8"))
        runs = _read(folder / RUNS)
        evaluations = _read(folder / EVALUATIONS)
        by_key = dict(list(evaluations.groupby("key"))) if len(evaluations) else {}
        finished = {row["key"]: _run(row, by_key[row["key"]]) for row in runs.to_dict("records")}
        cells = [_cell(values, content["settings"], finished) for values in content["cells"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder}: it does not hold the evidence of a scale ({type(error).__name__}: {error}); it must have "
            f"{CELLS}, {RUNS} and {EVALUATIONS} as one export wrote them. Export it again, or take the "
            "files from one commit."
        ) from error
    parts = {name: (title, shows) for name, (title, shows) in content["parts"].items()}
    return Evidence(content["scale"], parts, cells)


def _place(cell: Cell) -> tuple[str, str, str, str]:
    return cell.part, cell.experiment, cell.label, cell.method


def _cell(values: Mapping[str, Any], settings: Sequence[dict[str, Any]], runs: Mapping[str, FinishedRun]) -> Cell:
    keys = {int(seed): key for seed, key in values["keys"].items()}
    own = [runs[key] for key in keys.values() if key in runs]
    given = {**values, "settings": settings[values["settings"]], "keys": keys, "runs": own}
    return Cell(**given)


def _row(run: FinishedRun) -> dict[str, Any]:
    """Return a run without its accuracies; what is a list or a mapping is JSON."""
    everyone = list(run.ids or range(len(run.architectures)))
    cohorts = [record.cohort for record in run.history]
    lists = {
        "architectures": run.architectures,
        "label_counts": run.label_counts,
        "ids": run.ids,
        "adversaries": run.adversaries,
        "cohorts": [] if all(sorted(cohort) == everyone for cohort in cohorts) else cohorts,
        "diverged": {record.round: record.diverged for record in run.history if record.diverged},
        "seconds": {name: round(run.seconds(name), 1) for name in _phases(run)},
    }
    plain = {name: getattr(run, name) for name in ("key", "experiment", "method", "seed", "partition", "data")}
    packed = {name: json.dumps(value, separators=(",", ":")) for name, value in lists.items()}
    return {**plain, "rounds": len(run.history), **run.traffic, **packed}


def _phases(run: FinishedRun) -> list[str]:
    return list(dict.fromkeys(name for record in run.history for name in record.seconds))


def _evaluations(run: FinishedRun) -> list[dict[str, Any]]:
    return [
        {
            "key": run.key,
            "round": record.round,
            "client": place,
            **{point: round(values[place], DIGITS) for point, values in record.accuracy.items()},
        }
        for record in run.evaluated
        for place in range(len(run.architectures))
    ]


def _run(row: Mapping[Any, Any], evaluations: pd.DataFrame) -> FinishedRun:
    """Return a run with bytes and seconds of all rounds in the record of the last."""
    unpacked = {
        name: json.loads(row[name])
        for name in ("architectures", "label_counts", "ids", "adversaries", "cohorts", "diverged", "seconds")
    }
    everyone = unpacked["ids"] or list(range(len(unpacked["architectures"])))
    rounds = int(row["rounds"])
    accuracy: dict[int, dict[str, list[float]]] = {}
    for at, group in evaluations.groupby("round"):
        ordered = group.sort_values("client").drop(columns=["key", "round", "client"]).dropna(axis="columns", how="all")
        accuracy[int(str(at))] = {str(point): list(map(float, values)) for point, values in ordered.items()}
    history = [
        RoundRecord(
            round=t,
            cohort=(unpacked["cohorts"] or [everyone] * rounds)[t - 1],
            accuracy=accuracy.get(t, {}),
            diverged=unpacked["diverged"].get(str(t), []),
        )
        for t in range(1, rounds + 1)
    ]
    traffic = {name: [int(row[name])] for name in LEDGERS}
    history[-1] = replace(history[-1], traffic=traffic, seconds=unpacked["seconds"])
    plain: dict[str, Any] = {name: unpacked[name] for name in ("architectures", "label_counts", "ids", "adversaries")}
    plain |= {name: str(row[name]) for name in ("experiment", "method", "partition", "key", "data")}
    plain |= {"seed": int(row["seed"]), "run_id": "", "coefficients": None}
    return FinishedRun.from_dict({**plain, "history": [asdict(record) for record in history]})


def _put(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as compressed CSV, whose bytes do not depend on the time."""
    text = pd.DataFrame(rows).to_csv(index=False) if rows else ""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as opened:
        opened.write(text.encode())
    file.write_bytes(packed.getvalue())


def _read(file: Path) -> pd.DataFrame:
    text = gzip.decompress(file.read_bytes()).decode()
    if not text:
        return pd.DataFrame()
    found = pd.read_csv(io.StringIO(text), dtype={"key": str, "data": str})
    return found.fillna({"data": ""}) if "data" in found else found
