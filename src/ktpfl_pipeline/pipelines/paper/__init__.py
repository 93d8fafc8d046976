"""The KT-pFL paper's tables and figures, run as far as there is time, next to the paper's numbers."""

from ktpfl_pipeline.pipelines.paper.nodes import create_pipeline as create_pipeline
