"""The hyperparameters of an experiment's methods, searched on validation data with one budget for each method."""

from ktpfl_pipeline.pipelines.tune.nodes import create_pipeline as create_pipeline
