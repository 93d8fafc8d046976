"""Who gets which samples, saved as indices."""

from ktpfl_pipeline.pipelines.partition.pipeline import create_pipeline as create_pipeline
