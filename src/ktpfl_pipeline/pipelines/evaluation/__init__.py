"""What a method's runs amount to."""

from ktpfl_pipeline.pipelines.evaluation.pipeline import create_pipeline as create_pipeline
