"""The fault campaign: ``python tests/faults/campaign.py --faults=210 --seed=0`` writes docs/faults.md."""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import zygote

sys.path.insert(0, str(Path(__file__).parent))

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"


def main() -> int:
    """Run the campaign that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=210, help="how many must strike")
    parser.add_argument("--seed", type=int, default=0, help="of the list of faults")
    parser.add_argument("--only", default="", help="only faults whose line contains this")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    zygote.prepare()
    import faults
    from stage import Stage

    place = Path(tempfile.mkdtemp(prefix="ktpfl-faults-")).resolve()
    stage = Stage.build(place / "stage")
    outcomes = []
    try:
        drawn = faults.draw(stage, 2 * arguments.faults, arguments.seed)
        for fault in drawn:
            if arguments.only not in str(fault) or len(outcomes) == arguments.faults:
                continue
            outcome = faults.inject(fault, stage)
            print(f"{len(outcomes) + 1:4} {outcome.verdict or 'missed':9} {outcome.seconds:5.1f} s  {fault}  {' | '.join(outcome.sentences)}", flush=True)
            if outcome.why:
                print(outcome.why, flush=True)
            if outcome.verdict:
                outcomes.append(outcome)
    finally:
        stage.close()
        shutil.rmtree(place, ignore_errors=True)
    print(Counter((o.fault.kind, o.verdict) for o in outcomes))
    return int(any(outcome.verdict == "lost" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
