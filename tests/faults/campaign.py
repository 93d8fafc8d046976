"""Injects faults into runs and writes docs/faults.md: ``python tests/faults/campaign.py --faults=210 --seed=0``."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("support",))

import zygote
from faults import (
    AWAY,
    DAMAGED,
    FULL,
    KILLED,
    LOST,
    REFUSED,
    SURVIVED,
    UNREADABLE,
    WORKER,
    Fault,
    Outcome,
    draw,
    inject,
)
from stage import Stage

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
KINDS = (KILLED, FULL, AWAY, UNREADABLE, DAMAGED, WORKER)
VERDICTS = (SURVIVED, REFUSED, LOST)
SPARE = 2
"""So many times the faults asked for are drawn: runs may have ended before their moment."""
INTRODUCTION = """# Faults

What becomes of runs to which something happens. {number:,} faults were injected, each into a run of its own, drawn with
seed {seed}; {lost} were lost. `python tests/faults/campaign.py --faults={number} --seed={seed}` does it again and
writes this page; it took {minutes}, one run after another. The test suite has a short form of it.

A run is `kedro run --env=test --pipelines=hetero_digits`: KT-pFL, five clients, three rounds, with an MLflow store in
SQLite. What the fault did is mended as the sentence says, and the same command is given again. What that ends with is
compared with an undisturbed run: models, matrix and settings bit for bit, the history without wall times, the result,
the partition and its figure, checksums, and in MLflow one finished run for each key, one point for each metric and
round, and all files.

- **Survived:** nobody had to do anything; the run went on, or the same command ended it.
- **Refused:** the run ended with one sentence, without a traceback, and with its MLflow run marked as failed where that
  could still be written; after what the sentence says was done, the same command ended it.
- **Lost:** all else: another result, a second MLflow run, a point logged twice, a run left `RUNNING`, a traceback,
  a hang.
"""
MEANS = """## What is done

| fault | how |
| --- | --- |
| killed with SIGKILL | at the moment, milliseconds later, or by the clock |
| disk full | the rest of a small disk is filled, where one may be mounted; or the size of files is limited. No room at all, or up to 200 kB |
| tracking database taken away | deleted, moved away, replaced by a folder, overwritten, or locked by another process for a second or for good |
| file unreadable | opening it fails, *Permission denied* or *Input/output error*: injected, as permissions mean nothing to root |
| file damaged | cut short, or one bit flipped: a checkpoint between two runs, a partition or a result between its being written and read, any output before `--only-missing-outputs` |
| worker killed | one of two (`compute.workers`), or every one that is given a call |

Moments are the files that a run opens and renames, the statements that its database gets, and its training steps. To be
cheap, runs are forked from a process that has imported everything, and figures are blank, though written as ever. Power
cuts, which lose what was written and is not yet on the disk, are not among the faults.
"""  # noqa: E501 - rows of a table


def campaign(stage: Stage, listed: list[Fault], number: int, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Inject faults until so many have struck.

    Args:
        stage: where.
        listed: the faults, more than enough.
        number: how many.
        tell: called after each.
    """
    struck: list[Outcome] = []
    for fault in listed:
        if len(struck) == number:
            break
        outcome = inject(fault, stage)
        if outcome.verdict:
            struck.append(outcome)
            tell(outcome)
    return struck


def document(outcomes: list[Outcome], seed: int, seconds: float) -> str:
    """Return the page."""
    verdicts = Counter((outcome.fault.kind, outcome.verdict) for outcome in outcomes)
    hits = Counter((outcome.fault.place, outcome.fault.kind) for outcome in outcomes)
    places = sorted({place for place, _ in hits})
    lines = [
        INTRODUCTION.format(
            number=len(outcomes),
            seed=seed,
            lost=sum(verdicts[kind, LOST] for kind in KINDS) or "none",
            minutes=f"{seconds / 60:.0f} minutes",
        )
        + "\n## By kind\n",
        _row("fault", "injected", *VERDICTS),
        _row("---", *["---:"] * 4),
    ]
    for kind in KINDS:
        counts = [verdicts[kind, verdict] for verdict in VERDICTS]
        lines.append(_row(kind, sum(counts), *counts))
    totals = [sum(verdicts[kind, verdict] for kind in KINDS) for verdict in VERDICTS]
    lines += [_row("**all**", sum(totals), *totals), "\n## Where they hit\n", _row("place", *KINDS)]
    lines.append(_row("---", *["---:"] * len(KINDS)))
    lines += [_row(place, *(hits[place, kind] or "" for kind in KINDS)) for place in places]
    lines += ["", MEANS, "## What was said\n", "Paths are shortened.\n"]
    for kind in KINDS:
        said = Counter(shown(said) for o in outcomes if o.fault.kind == kind for said in o.sentences)
        texts = [f"{number:3} × {text}" for text, number in sorted(said.items())]
        lines += [f"### {kind.capitalize()}\n", "```text", *texts, "```\n"] if said else []
    return "\n".join(lines)


def shown(sentence: str) -> str:
    """Return a sentence with what differs from run to run left out."""
    sentence = re.sub(r"/\S*/project/", "", sentence)
    sentence = re.sub(r"seed-0-\w+", "seed-0-…", re.sub(r"Client \d", "Client n", sentence))
    sentence = re.sub(r"mlruns/hetero_digits/\w+/\S+?(?=[):])", "mlruns/…", sentence)
    return re.sub(r"tmp/\w+/", "tmp/…/", sentence)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main() -> int:
    """Run the campaign that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=210, help="how many must strike")
    parser.add_argument("--seed", type=int, default=0, help="of the list of faults")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--only", default="", help="only faults whose line contains this; the page is left as it is")
    asked = parser.parse_args()
    zygote.prepare()
    begun = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="ktpfl-faults-")).resolve()
    try:
        jobs = [_start(job, asked, place / f"{job}") for job in range(asked.jobs)]
        failed = [job for job in jobs if os.waitpid(job, 0)[1]]
        files = sorted(place.glob("*.json"), key=lambda file: int(file.stem))
        outcomes = [outcome for file in files for outcome in _read(file)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if failed:
        return 1
    if not asked.only:
        DOCUMENT.write_text(document(outcomes, asked.seed, asked.jobs * (time.monotonic() - begun)), encoding="utf-8")
    lost = sum(outcome.verdict == LOST for outcome in outcomes)
    print(f"{len(outcomes)} faults, {lost} lost")  # noqa: T201
    return int(bool(lost))


def _start(job: int, asked: argparse.Namespace, place: Path) -> int:
    """Start one job: its share of the faults, on a stage of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        stage = Stage.build(place)
        try:
            listed = [fault for fault in draw(stage, SPARE * asked.faults, asked.seed) if asked.only in str(fault)]
            share = len(range(job, asked.faults, asked.jobs))
            outcomes = campaign(stage, listed[job :: asked.jobs], share, _tell)
        finally:
            stage.close()
        place.with_suffix(".json").write_text(json.dumps([asdict(outcome) for outcome in outcomes]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if code:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(code)


def _tell(outcome: Outcome) -> None:
    said = "".join(f"\n    {sentence}" for sentence in outcome.sentences)
    why = f"\n{outcome.why}" if outcome.why else ""
    print(f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.fault}{said}{why}", flush=True)  # noqa: T201


def _read(file: Path) -> list[Outcome]:
    def outcome(values: dict[str, object]) -> Outcome:
        fault = dict(values.pop("fault"))  # type: ignore[call-overload]
        fault["moment"] = fault["moment"] and tuple(fault["moment"])
        return Outcome(Fault(**fault), **{**values, "sentences": tuple(values["sentences"])})  # type: ignore

    return [outcome(values) for values in json.loads(file.read_text())]


if __name__ == "__main__":
    sys.exit(main())
