"""The project's pipelines, made once, because making them reads all of conf/ and takes two seconds."""

from functools import cache

from kedro.pipeline import Pipeline
from project_copy import quick_yaml

from ktpfl_pipeline.pipeline_registry import register_pipelines


@cache
def pipelines() -> dict[str, Pipeline]:
    """Return the pipelines by name. They are made once, so tests must not change them."""
    with quick_yaml():
        return register_pipelines()
