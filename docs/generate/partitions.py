"""Draws docs/images/partitions.png and feature_skew.png: ``python docs/generate/partitions.py``, some seconds.

Above, scikit-learn's digits dealt out to twelve clients by each scheme; below, one digit at each level of feature skew.
"""

from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torchvision.transforms.v2.functional import resize

from ktpfl_pipeline.analysis.skew import label_skew
from ktpfl_pipeline.data.feature_skew import FeatureSkew
from ktpfl_pipeline.data.partition import label_counts, partition
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.style import PAPER, label_colors

IMAGES = Path(__file__).parents[1] / "images"
CLIENTS, CLASSES, LEVELS = 12, 10, 4
SCHEMES: dict[str, dict[str, Any]] = {
    "iid": {"scheme": "iid"},
    "all_labels": {"scheme": "all_labels"},
    "k_labels, k = 2": {"scheme": "k_labels"},
    "k_labels, k = 4": {"scheme": "k_labels", "labels_per_client": 4},
    "shards, 2 each": {"scheme": "shards"},
    "dirichlet, α = 0.3": {"scheme": "dirichlet", "alpha": 0.3},
    "dirichlet, balanced": {"scheme": "dirichlet", "alpha": 0.3, "balanced": True},
    "quantity, α = 1": {"scheme": "quantity", "alpha": 1.0},
}


@base.styled
def schemes() -> Any:
    """Return a panel of stacked bars for each scheme: a bar is a client, a color a label."""
    labels = torch.from_numpy(load_digits().target)
    figure, panels = base.grid_of_panels(list(SCHEMES), 4, 1.75, 22, sharey=True)
    for axes, asked in zip(panels, SCHEMES.values(), strict=True):
        counts = label_counts(labels, partition(labels, CLIENTS, seed=0, **asked), CLASSES).numpy()
        starts = counts.cumsum(axis=1) - counts
        for label, color in enumerate(label_colors(CLASSES)):
            look: Any = {"color": color, "edgecolor": PAPER, "linewidth": 0.3}
            axes.barh(range(CLIENTS), counts[:, label], left=starts[:, label], height=0.85, **look)
        axes.set(yticks=[], ylim=(CLIENTS - 0.5, -0.5))
        axes.set_xlabel(f"Jensen–Shannon {label_skew(counts).jensen_shannon:.2f}")
        base.plain(axes, grid="x")
    return figure


@base.styled
def feature_skew() -> Any:
    """Return one row a kind: a colored digit as the clients of each level see it."""
    gray = resize(torch.from_numpy(load_digits().images[[3]] * 15).byte()[:, None], [64, 64])
    image = torch.cat([gray, gray // 2, 120 - gray // 4], dim=1)
    kinds = ["rotation", "blur", "color", "noise"]
    titles = [f"{kind}, level {level}" for kind in kinds for level in range(LEVELS)]
    figure, panels = base.grid_of_panels(titles, 2 * LEVELS, 1.05, 10)
    for place, axes in enumerate(panels):
        kind, level = kinds[place // LEVELS], place % LEVELS
        axes.imshow(FeatureSkew(kind, LEVELS, 0).applied(image, level, "train")[0].permute(1, 2, 0))
        axes.set_axis_off()
    return figure


if __name__ == "__main__":
    for draw in (schemes, feature_skew):
        name = "partitions" if draw is schemes else "feature_skew"
        draw().savefig(IMAGES / f"{name}.png", dpi=110)
