"""Keep finished runs of the paper's tables as small files, and draw every table and figure from the kept files.

    python benchmarks/paper_evidence.py keep light          after make paper SCALE=light, also while runs are left
    python benchmarks/paper_evidence.py draw                a page for each scale that is kept, without any images

`make paper` writes the files of what is finished to `data/07_model_output/paper_evidence`. `keep` merges them into
`benchmarks/results/paper/<scale>`, cell by cell: the cell with more finished runs is kept.
"""

import argparse
from pathlib import Path

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.reports import reproduction

ROOT = Path(__file__).resolve().parents[1]
FINISHED, KEPT, PAGES = (
    "data/07_model_output/paper_evidence",
    "benchmarks/results/paper",
    "data/08_reporting/paper_kept",
)


def keep(scale: str, finished: Path, kept: Path) -> int:
    """Merge what is finished into the files of a scale, and return how many finished runs these have."""
    found, place = evidence.load(finished), kept / scale
    if place.exists():
        found = evidence.merged(evidence.load(place), found)
    evidence.save(found, place)
    return len({run.key for cell in found.cells for run in cell.runs})


def draw(kept: Path, pages: Path) -> list[Path]:
    """Write the report of each scale from its files, and return the pages."""
    drawn = []
    for place in sorted(file.parent for file in kept.glob(f"*/{evidence.CELLS}")):
        found = evidence.load(place)
        report = reproduction.build(found.scale, found.parts, found.cells, here_and_now())
        with replacing(pages / place.name) as partial:
            report.write(partial)
        drawn.append(pages / place.name / "report.html")
    return drawn


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keeping, drawing = commands.add_parser("keep"), commands.add_parser("draw")
    keeping.add_argument("scale", help="the name of the folder: light, two_cores, paper")
    keeping.add_argument("--finished", type=Path, default=ROOT / FINISHED, help="the folder that make paper wrote")
    for each in (keeping, drawing):
        each.add_argument("--kept", type=Path, default=ROOT / KEPT, help="the folder of all scales")
    drawing.add_argument("--pages", type=Path, default=ROOT / PAGES, help="where the pages go")
    asked = parser.parse_args()
    if asked.command == "keep":
        print(f"{keep(asked.scale, asked.finished, asked.kept)} finished runs in {asked.kept / asked.scale}")
    else:
        print(*draw(asked.kept, asked.pages), sep="\n")


if __name__ == "__main__":
    main()
