"""The hyperparameters of an experiment's methods, searched on validation data with one budget for each method."""

from ktpfl_pipeline.pipelines.tune.nodes import resolve
from ktpfl_pipeline.pipelines.tune.pipeline import create_pipeline

__all__ = ["create_pipeline", "resolve"]
