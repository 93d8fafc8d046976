"""A small file with the finished runs of the paper's tables, from which all tables and figures can be made again.

The file is compressed JSON with ``scale``, ``parts``, ``machines``, ``cells`` and ``runs``. Each cell has its settings
and the keys of its runs. Each run has the values that tables and figures need: accuracies (0..1), bytes and seconds by
round. Losses, coefficient matrices and measures other than accuracy are not stored. Equal content gives equal bytes.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.metrics import RoundRecord

DIGITS = 6
"""Decimal digits of stored accuracies, enough for a difference of one among a million samples."""


@dataclass(frozen=True)
class Evidence:
    """The finished results of the paper's tables at one scale."""

    scale: str  # the report's description of the settings
    parts: Mapping[str, tuple[str, str]]  # title and form (table, or a name of `DRAWN`) by name
    cells: Sequence[Cell]  # the cells of all parts, with finished runs
    machines: Sequence[str] = ()  # the machines on which runs were trained


def save(evidence: Evidence, file: Path) -> None:
    """Write evidence to a file. A missing folder is created."""
    plain = ("experiment", "method", "seed", "partition", "key", "architectures", "label_counts", "data")
    runs = {}
    for run in (run for cell in evidence.cells for run in cell.runs):
        kept = {name: getattr(run, name) for name in (*plain, "ids", "adversaries", "patience")}
        small = FinishedRun(**kept, run_id="", history=list(map(_round, run.history)), coefficients=None)
        runs[run.key] = small.to_dict()
    content = {
        "scale": evidence.scale,
        "parts": evidence.parts,
        "machines": list(evidence.machines),
        "cells": [replace(cell, runs=[], seconds=None, judged="").to_dict() for cell in evidence.cells],
        "runs": dict(sorted(runs.items())),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(file: Path) -> Evidence:
    """Return the evidence in a file that `save` wrote. Raises InputError if the file is missing or invalid."""
    try:
        content = json.loads(gzip.decompress(file.read_bytes()))
        runs = {key: FinishedRun.from_dict(run) for key, run in content["runs"].items()}
        cells = [Cell.from_dict(cell) for cell in content["cells"]]
        parts = {name: (title, shows) for name, (title, shows) in content["parts"].items()}
        scale, machines = content["scale"], content["machines"]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{file}: it does not hold the evidence of a scale ({type(error).__name__}: {error}). Export it again."
        ) from error
    found = [replace(cell, runs=[runs[key] for key in cell.keys.values() if key in runs]) for cell in cells]
    return Evidence(scale, parts, found, machines)


def _round(record: RoundRecord) -> RoundRecord:
    """Return the stored values of a round, with bytes summed over the clients."""
    return RoundRecord(
        round=record.round,
        cohort=record.cohort,
        accuracy={point: [round(value, DIGITS) for value in values] for point, values in record.accuracy.items()},
        diverged=record.diverged,
        traffic={name: [sum(values)] for name, values in record.traffic.items()},
        seconds={phase: round(seconds, 1) for phase, seconds in record.seconds.items()},
    )
