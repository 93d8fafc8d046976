"""The project's pipelines: making them reads all of conf/, for two seconds."""

from functools import cache

from kedro.pipeline import Pipeline
from project_copy import quick_yaml

from ktpfl_pipeline.pipeline_registry import register_pipelines


@cache
def pipelines() -> dict[str, Pipeline]:
    """Return them by name; they are made once, and none is changed."""
    with quick_yaml():
        return register_pipelines()
