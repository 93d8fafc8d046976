"""The page on which MLflow compares runs: the charts, the runs that it shows, and their groups.

MLflow stores such a page as a tag of the experiment, and a link contains the key of the tag. The format is that of
MLflow's "Share view".
"""

import base64
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from ktpfl_pipeline.core.metrics import AFTER_LOCAL, AFTER_TRANSFER

KEY = "ktpfl"
"""The key of the view in links."""
KIND = "mlflow.experimentKind", "custom_model_development"
"""The tag that makes MLflow open an experiment with its runs instead of traces of language models."""
TAG = f"mlflow.sharedViewState.{KEY}"
ADDRESS = f"/runs?workflowType=machine_learning&compareRunsMode=CHART&viewStateShareKey={KEY}"
"""The address of the view, relative to the address of the experiment."""
FINAL = f"final/{AFTER_TRANSFER}"
SECTIONS = {
    "Final accuracy": (FINAL, f"final/{AFTER_LOCAL}"),
    "Accuracy by round": (f"accuracy/{AFTER_TRANSFER}", f"accuracy/{AFTER_LOCAL}"),
    "Traffic and time": ("final/megabytes", "seconds/round"),
}
"""The metrics of each expanded section, in order."""
GROUPS = (
    *("accuracy", "bytes", "class_accuracy", "final", "loss", "measures", "metrics", "newcomers", "privacy", "seconds"),
    "work",
)
"""The parts before the slash in the names of logged metrics."""
FOLDED = (*GROUPS, "Model metrics", "System metrics")
"""Collapsed sections, which MLflow makes for the other metrics. Metrics without a slash are model metrics."""
MOST = 100
"""The largest number of groups of runs in a bar chart; MLflow's default is 10."""

_OURS = {"deleted": False, "isGenerated": False}
_AXES = {"xAxisKey": "step", "useGlobalXaxisKey": True, "scaleType": "linear", "xAxisScaleType": "linear", "range": {}}


def tag(filtered: str, groups: Sequence[str], found: Iterable[Sequence[str]]) -> str:
    """Return the value of the experiment's tag `TAG`, which stores the page as compressed JSON.

    Args:
        filtered: the search filter for the runs.
        groups: the tags by which the runs are grouped; charts show each group with a band over its seeds.
        found: the existing combinations of values of these tags. The list of runs shows these groups collapsed.
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
        "isAccordionReordered": True,  # otherwise MLflow sorts the sections by name
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
    # With its default smoothness, MLflow would not draw the means themselves.
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
