"""Interactive figures, which kedro-viz shows."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ktpfl_pipeline.reports.style import NAMED, label_colours


def labels_per_client(counts: Sequence[Sequence[int]], clients: Sequence[Any], classes: Sequence[Any]) -> go.Figure:
    """Return the bars of `figures.labels_per_client` for a web page.

    Args:
        counts: (N, K) samples of each client by class.
        clients: (N,) their names or numbers.
        classes: (K,) their names or numbers.
    """
    margin = {"l": 60, "r": 20, "t": 30, "b": 50}
    layout = go.Layout(template="simple_white", xaxis_title="Samples", yaxis_title="Client", margin=margin)
    figure = go.Figure(layout=layout)
    for label, colour, *own in zip(classes, label_colours(len(classes)), *counts, strict=True):
        if not any(own):
            continue
        figure.add_bar(
            y=[client for client, count in zip(clients, own, strict=True) if count],
            x=[count for count in own if count],
            name=str(label),
            orientation="h",
            marker_color=colour,
            hovertemplate=f"client %{{y}}, class {label}: %{{x}} samples<extra></extra>",
        )
    axis: dict[str, Any] = {"autorange": "reversed", "dtick": 1 if len(clients) <= NAMED else None}
    if isinstance(clients[0], str):  # else numbers as names would be positions
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": clients}
    figure.update_layout(barmode="stack", legend_title_text="Class", yaxis=axis)
    return figure
