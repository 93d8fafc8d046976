"""The data of an experiment: images in one size, the public set without anything private, who owns what."""

from ktpfl_pipeline.pipelines.data.pipeline import create_pipeline

__all__ = ["create_pipeline"]
