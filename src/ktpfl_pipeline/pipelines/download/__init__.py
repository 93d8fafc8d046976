"""Samples: loaded, downloaded where they are not there yet, and images brought to one size."""

from ktpfl_pipeline.pipelines.download.pipeline import create_pipeline as create_pipeline
