"""All finished comparisons on one page."""

from ktpfl_pipeline.pipelines.overview.pipeline import create_pipeline as create_pipeline
