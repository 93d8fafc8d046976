"""One setting of an experiment at several values: the paper's Tables 3 to 6."""

from ktpfl_pipeline.pipelines.sweep.nodes import create_pipeline as create_pipeline
