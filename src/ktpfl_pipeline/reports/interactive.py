"""Interactive figures, which kedro-viz shows."""

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from ktpfl_pipeline.reports.style import NAMED, label_colours

if TYPE_CHECKING:
    import pandas as pd


def labels_per_client(table: "pd.DataFrame") -> go.Figure:
    """Return the bars of `figures.labels_per_client` for a web page.

    Args:
        table: one row per client and label, with the columns client, label and count.
    """
    labels = sorted(table["label"].unique())
    margin = {"l": 60, "r": 20, "t": 30, "b": 50}
    layout = go.Layout(template="simple_white", xaxis_title="Samples", yaxis_title="Client", margin=margin)
    figure = go.Figure(layout=layout)
    for label, colour in zip(labels, label_colours(len(labels)), strict=True):
        own = table[table["label"] == label]
        figure.add_bar(
            y=own["client"].tolist(),
            x=own["count"].tolist(),
            name=str(label),
            orientation="h",
            marker_color=colour,
            hovertemplate=f"client %{{y}}, class {label}: %{{x}} samples<extra></extra>",
        )
    clients = table["client"].unique().tolist()
    axis: dict[str, Any] = {"autorange": "reversed", "dtick": 1 if len(clients) <= NAMED else None}
    if isinstance(clients[0], str):  # else numbers as names would be positions
        axis |= {"type": "category", "categoryorder": "array", "categoryarray": clients}
    figure.update_layout(barmode="stack", legend_title_text="Class", yaxis=axis)
    return figure
