"""The page on which MLflow compares runs: which charts it shows of which runs, and how they are grouped.

MLflow keeps such a page as a tag of the experiment, which a link names. Its form is that of "Share view".
"""

import base64
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER

KEY = "ktpfl"
"""By which a link names the view."""
KIND = "mlflow.experimentKind", "custom_model_development"
"""The tag with which MLflow opens an experiment on its runs, and not on the traces of language models."""
TAG = f"mlflow.sharedViewState.{KEY}"
ADDRESS = f"/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
"""Where the view is, after the address of the experiment."""
FINAL = f"final/{AFTER_TRANSFER}"
SECTIONS = {
    "Final accuracy": (FINAL, f"final/{AFTER_LOCAL}"),
    "Accuracy by round": (f"accuracy/{AFTER_TRANSFER}", f"accuracy/{AFTER_LOCAL}"),
    "Traffic and time": ("final/megabytes", "seconds/round"),
}
"""What is shown first: metrics by section."""
GROUPS = (
    *("accuracy", "bytes", "class_accuracy", "final", "loss", "measures", "metrics", "newcomers", "privacy", "seconds"),
    "work",
)
"""What is before the slash in the names of the metrics that runs log."""
FOLDED = (*GROUPS, "Model metrics", "System metrics")
"""Sections that MLflow itself makes of what `SECTIONS` does not show; metrics without a slash are model metrics."""
MOST = 100
"""Groups of runs that a chart of bars shows; MLflow's default is 10."""

_OURS = {"deleted": False, "isGenerated": False}
_AXES = {"xAxisKey": "step", "useGlobalXaxisKey": True, "scaleType": "linear", "xAxisScaleType": "linear", "range": {}}


def tag(filtered: str, groups: Sequence[str], found: Iterable[Sequence[str]]) -> str:
    """Return the value of the experiment's tag: all groups of runs, each with a band over its seeds.

    `filtered` is the search by which the runs are found, `groups` the tags by which they are grouped, and `found` the
    values of these tags that there are: the list shows these groups and not each run.
    """
    state = {
        "searchFilter": filtered,
        "orderByKey": f"metrics.`{FINAL}`",
        "orderByAsc": False,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": g} for g in groups]},
        "groupsExpanded": dict.fromkeys(
            (",".join(f"tag.{group}.{value}" for group, value in zip(groups, values, strict=True)) for values in found),
            False,
        ),
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
    size = {"columns": 2, "cardHeight": 420} if shown else {}
    return {"uuid": name, "name": name, "display": shown, "isReordered": True, **_OURS, **size}


def _chart(section: str, metric: str) -> dict[str, Any]:
    # Without the smoothness, MLflow draws lines that are not those of the means.
    lines = {"type": "LINE", "selectedMetricKeys": [metric], "lineSmoothness": 0, "useGlobalLineSmoothing": True}
    kind = {"type": "BAR"} if metric.startswith("final/") else {**lines, **_AXES}
    return {
        "uuid": metric,
        "metricSectionId": section,
        "metricKey": metric,
        "runsCountToCompare": MOST,
        **kind,
        **_OURS,
    }
