"""The federated runs of one method, one per seed."""

from ktpfl_pipeline.pipelines.federated_training.pipeline import create_pipeline as create_pipeline
