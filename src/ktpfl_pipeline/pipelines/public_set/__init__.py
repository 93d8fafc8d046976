"""The public, unlabelled samples that every round's batch is drawn from."""

from ktpfl_pipeline.pipelines.public_set.pipeline import create_pipeline as create_pipeline
from ktpfl_pipeline.pipelines.public_set.pipeline import of_real_clients as of_real_clients
