"""The report of an experiment."""

from ktpfl_pipeline.pipelines.reporting.pipeline import create_pipeline as create_pipeline
