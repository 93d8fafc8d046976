"""Kedro's settings of this project."""

from typing import Any

from ktpfl_pipeline.hooks import ProjectHooks

HOOKS = (ProjectHooks(),)

CONFIG_LOADER_ARGS: dict[str, Any] = {
    "base_env": "base",
    "default_run_env": "local",
    # An overlay such as conf/quick names only what it changes, at any depth.
    "merge_strategy": {"parameters": "soft", "tracking": "soft"},
    "config_patterns": {"tracking": ["tracking*", "tracking*/**"]},
}
