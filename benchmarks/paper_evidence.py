"""Keep finished runs of the paper's tables as a small file, and draw every table and figure from the kept files.

    python benchmarks/paper_evidence.py keep light          after make paper SCALE=light, also while runs are left
    python benchmarks/paper_evidence.py draw                a page for each scale that is kept, without any images

`make paper` writes finished runs to `data/07_model_output/paper_evidence.json.gz`. `keep` merges this file into
`benchmarks/results/paper/<scale>.json.gz`, cell by cell and seed by seed.
"""

import argparse
from pathlib import Path

from ktpfl_pipeline.analysis import evidence
from ktpfl_pipeline.analysis.provenance import here_and_now
from ktpfl_pipeline.core.machine.files import replacing
from ktpfl_pipeline.reports import reproduction

ROOT = Path(__file__).resolve().parents[1]
FINISHED, KEPT, PAGES = (
    "data/07_model_output/paper_evidence.json.gz",
    "benchmarks/results/paper",
    "data/08_reporting/paper_kept",
)


def keep(scale: str, finished: Path, kept: Path) -> int:
    """Merge finished runs into the file of a scale, and return the number of finished runs in this file."""
    found, place = evidence.load(finished), kept / f"{scale}.json.gz"
    if place.exists():
        found = evidence.merged(evidence.load(place), found)
    evidence.save(found, place)
    return len({run.key for cell in found.cells for run in cell.runs})


def draw(kept: Path, pages: Path) -> list[Path]:
    """Write the report of each scale from its file, and return the pages."""
    drawn = []
    for file in sorted(kept.glob("*.json.gz")):
        found, name = evidence.load(file), file.name.removesuffix(".json.gz")
        report = reproduction.build(found, here_and_now())
        with replacing(pages / name) as partial:
            report.write(partial)
        drawn.append(pages / name / "report.html")
    return drawn


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keeping, drawing = commands.add_parser("keep"), commands.add_parser("draw")
    keeping.add_argument("scale", help="the name of the file: light, two_cores, paper")
    keeping.add_argument("--finished", type=Path, default=ROOT / FINISHED, help="the file that make paper wrote")
    for each in (keeping, drawing):
        each.add_argument("--kept", type=Path, default=ROOT / KEPT, help="the folder of all scales")
    drawing.add_argument("--pages", type=Path, default=ROOT / PAGES, help="where the pages go")
    asked = parser.parse_args()
    if asked.command == "keep":
        print(f"{keep(asked.scale, asked.finished, asked.kept)} finished runs of the scale {asked.scale}")
    else:
        print(*draw(asked.kept, asked.pages), sep="\n")


if __name__ == "__main__":
    main()
