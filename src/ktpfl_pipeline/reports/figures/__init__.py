"""The figures of reports, runs and notebooks: one function each."""

from ktpfl_pipeline.reports.figures.accuracy import (
    accuracy_curves,
    accuracy_panels,
    client_accuracy,
    spread_over_clients,
)
from ktpfl_pipeline.reports.figures.differences import critical_differences, differences, differences_by_value
from ktpfl_pipeline.reports.figures.labels import labels_per_client
from ktpfl_pipeline.reports.figures.matrix import (
    coefficient_heatmaps,
    coefficient_panels,
    confusion_matrices,
    matrix_over_rounds,
)
from ktpfl_pipeline.reports.figures.studies import accuracy_by_value, search_history, search_slices
from ktpfl_pipeline.reports.figures.theorem import theorem
from ktpfl_pipeline.reports.figures.traffic import accuracy_by_bytes, accuracy_by_traffic, bytes_panels, traffic_panels

__all__ = [
    "accuracy_by_bytes",
    "accuracy_by_traffic",
    "accuracy_by_value",
    "accuracy_curves",
    "accuracy_panels",
    "bytes_panels",
    "client_accuracy",
    "coefficient_heatmaps",
    "coefficient_panels",
    "confusion_matrices",
    "critical_differences",
    "differences",
    "differences_by_value",
    "labels_per_client",
    "matrix_over_rounds",
    "search_history",
    "search_slices",
    "spread_over_clients",
    "theorem",
    "traffic_panels",
]
