"""What a method's runs amount to."""

from ktpfl_pipeline.pipelines.evaluation.pipeline import create_pipeline

__all__ = ["create_pipeline"]
