"""Kedro's settings of this project."""

import warnings
from typing import Any

from ktpfl_pipeline.hooks import ProjectHooks
from ktpfl_pipeline.terminal import TerminalHooks

# The project is used with `--pipeline=NAME`; Kedro 1.7 takes it and says at every run that `--pipelines` is newer.
warnings.filterwarnings("ignore", message="Option '--pipeline' is deprecated")

HOOKS = (ProjectHooks(), TerminalHooks())

CONFIG_LOADER_ARGS: dict[str, Any] = {
    "base_env": "base",
    "default_run_env": "local",
    # An overlay such as conf/quick names only what it changes, at any depth.
    "merge_strategy": {"parameters": "soft", "tracking": "soft"},
    "config_patterns": {"tracking": ["tracking*", "tracking*/**"]},
}
