"""The hyperparameters of an experiment's methods, searched on validation data with one budget for each method."""

from ktpfl_pipeline.pipelines.tune.nodes import resolve as resolve
from ktpfl_pipeline.pipelines.tune.pipeline import create_pipeline as create_pipeline
