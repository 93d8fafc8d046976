"""The page on which MLflow compares runs: which charts it shows of which runs, and how they are grouped.

MLflow keeps such a page as a tag of the experiment, which a link names. Its form is that of "Share view".
"""

import base64
import json
import time
import zlib
from typing import Any

from ktpfl_pipeline.tracking.tracker import PARENT

KEY = "ktpfl"
"""By which a link names the view."""
TAG = f"mlflow.sharedViewState.{KEY}"
ADDRESS = f"/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
"""Where the view is, after the address of the experiment."""
FINAL = "final/after_transfer"
SECTIONS = {
    "Final accuracy": (FINAL, "final/after_local"),
    "Accuracy by round": ("accuracy/after_transfer", "accuracy/after_local"),
    "Traffic and time": ("cost/megabytes", "cost/seconds", "seconds/round"),
}
FOLDED = ("accuracy", "bytes", "diverged", "final", "loss", "privacy", "seconds", "Model metrics", "System metrics")
"""Sections that MLflow itself makes of what `SECTIONS` does not show."""
MOST = 100
"""Groups of runs that a chart of bars shows; MLflow's default is 10."""


def tag(parent: str = "", *, by_setting: bool = False) -> str:
    """Return the value of the experiment's tag: all methods, each with a band over its seeds.

    Args:
        parent: the run of a comparison, sweep or tuning: its runs alone are shown; empty shows all runs with a seed.
        by_setting: whether methods are told apart by what a sweep or tuning sets, too.
    """
    groups = ["method", *(["setting"] if by_setting else [])]
    state = {
        "searchFilter": f"tags.`{PARENT}` = '{parent}'" if parent else "tags.seed != ''",
        "orderByKey": f"metrics.`{FINAL}`",
        "orderByAsc": False,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": g} for g in groups]},
        "groupsExpanded": {},
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL",
        "hideEmptyCharts": True,
        "isAccordionReordered": True,  # else MLflow sorts the sections by name
        "selectedColumns": [f"metrics.`{FINAL}`"],
        "compareRunSections": [_section(name, shown=name in SECTIONS) for name in (*SECTIONS, *FOLDED)],
        "compareRunCharts": [_chart(section, metric) for section, metrics in SECTIONS.items() for metric in metrics],
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    now = int(1000 * time.time())
    return json.dumps({"name": "Methods", "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"})


def _section(name: str, *, shown: bool) -> dict[str, Any]:
    return {"uuid": name, "name": name, "display": shown, "isReordered": True, "deleted": False, "isGenerated": False}


def _chart(section: str, metric: str) -> dict[str, Any]:
    chart = {"uuid": metric, "metricSectionId": section, "metricKey": metric, "deleted": False, "isGenerated": False}
    if metric.startswith(("final/", "cost/")):
        return {**chart, "type": "BAR", "runsCountToCompare": MOST}
    return {**chart, "type": "LINE", "runsCountToCompare": MOST, "selectedMetricKeys": [metric], "xAxisKey": "step"}
