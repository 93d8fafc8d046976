"""Draws docs/images/first_run.svg, for light and dark pages, from the results of `make run`.

python docs/generate/first_run.py
"""

import json
import re
from pathlib import Path

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.study import Study
from ktpfl_pipeline.reports import sweep
from ktpfl_pipeline.reports.figures import base, differences_by_value
from ktpfl_pipeline.reports.render import __file__ as RENDER

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "data" / "07_model_output" / "sweep_first_run" / "cells.json"
PICTURE = ROOT / "docs" / "images" / "first_run.svg"
CSS = (Path(RENDER).parent / "style.css.jinja").read_text(encoding="utf-8")
DARK = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", CSS))  # a name's last value is the one for dark pages
LIFT = float(re.findall(r"--lift: (\d+)%", CSS)[-1]) / 100
NAMES = {"same class mix (iid)": "all ten classes per client", "2 labels per client": "two classes per client"}


def dark(color: re.Match[str]) -> str:
    """Return a color of a figure as it is on a dark page: a named color, or the color mixed with white."""
    if name := base.TOKENS.get(color[0]):
        return DARK[name]
    parts = (int(color[0][at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + LIFT * (255 - part)):02x}" for part in parts)


def main() -> None:
    """Draw both pictures."""
    study = Study.from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    rows = sweep.table_rows(study.variants)
    found = {NAMES[value]: own for value, own in sweep.by_value(rows).items()}
    lead = Comparison([row.result for row in rows]).headline
    drawn = base.svg_file(base.svg(differences_by_value(found, lead), "first-run"))
    PICTURE.write_text(drawn, encoding="utf-8")
    shown = re.sub(r"#[0-9a-f]{6}\b", dark, drawn)
    PICTURE.with_stem("first_run_dark").write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
