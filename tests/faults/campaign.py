"""Injects faults into runs, writes docs/project/faults.md: ``python tests/faults/campaign.py --faults=210 --seed=0``.

`faults.py` lists the faults, `moments.py` says when they strike and `stage.py` what; `injection.py` lets one strike and
judges the end, `forked_runs.py` starts the runs, and `page.py` writes the page.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

import forked_runs
from faults import LOST, Fault, Outcome, draw
from injection import inject
from page import DOCUMENT, document
from stage import Stage

DRAWN = 2
"""Faults that are drawn for each that must strike: a run may end before its fault's moment."""


def main() -> int:
    """Run the campaign that the command line asks for; return 1 if a fault was lost or a process failed."""
    asked = arguments()
    forked_runs.prepare()
    begun = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="ktpfl-faults-")).resolve()
    try:
        jobs = [start(job, asked, place) for job in range(asked.jobs)]
        failed = [job for job in jobs if os.waitpid(job, 0)[1]]
        outcomes = [outcome for job in range(asked.jobs) for outcome in read(place / f"{job}.json")]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if failed:
        return 1
    if not asked.only:
        DOCUMENT.write_text(document(outcomes, asked.seed, asked.jobs * (time.monotonic() - begun)), encoding="utf-8")
    lost = sum(outcome.verdict == LOST for outcome in outcomes)
    print(f"{len(outcomes)} faults, {lost} lost")  # noqa: T201
    return int(bool(lost))


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    summary, _, _ = __doc__.partition("\n")
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--faults", type=int, default=210, help="how many must strike (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the list of faults (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side (%(default)s)")
    parser.add_argument("--only", default="", help="only faults whose line contains this; the page is left as it is")
    return parser.parse_args()


def campaign(stage: Stage, listed: list[Fault], number: int, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Inject faults until so many have struck.

    Args:
        stage: the project that the runs happen in.
        listed: the faults, more than `number`.
        number: how many must strike.
        tell: called after each that has struck.
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


def tell(outcome: Outcome) -> None:
    """Print what came of a fault."""
    said = "".join(f"\n    {sentence}" for sentence in outcome.sentences)
    why = f"\n{outcome.why}" if outcome.why else ""
    print(f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.fault}{said}{why}", flush=True)  # noqa: T201


def start(job: int, asked: argparse.Namespace, place: Path) -> int:
    """Fork a process for one job's share of the faults, on a stage of its own; return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        stage = Stage.build(place / f"{job}")
        try:
            listed = [fault for fault in draw(stage, DRAWN * asked.faults, asked.seed) if asked.only in str(fault)]
            share = len(range(job, asked.faults, asked.jobs))
            outcomes = campaign(stage, listed[job :: asked.jobs], share, tell)
        finally:
            stage.close()
        (place / f"{job}.json").write_text(json.dumps([asdict(outcome) for outcome in outcomes]))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if code:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(code)


def read(file: Path) -> list[Outcome]:
    """Return the outcomes that a job has written; none where it failed."""
    return [_outcome(**values) for values in json.loads(file.read_text())] if file.exists() else []


def _outcome(fault: dict[str, Any], sentences: list[str], **values: Any) -> Outcome:
    moment = fault["moment"] and tuple(fault["moment"])
    return Outcome(Fault(**{**fault, "moment": moment}), sentences=tuple(sentences), **values)


if __name__ == "__main__":
    sys.exit(main())
