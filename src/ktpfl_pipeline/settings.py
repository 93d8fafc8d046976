"""Kedro's settings of this project."""

import warnings
from pathlib import Path
from typing import Any

from kedro.config import OmegaConfigLoader

from ktpfl_pipeline.config.reading import project_folder
from ktpfl_pipeline.hooks import ProjectHooks

__all__ = ["project_folder"]  # for `ui`


class InheritingConfigLoader(OmegaConfigLoader):
    """Kedro's loader of conf/, which completes each section of the parameters by what it inherits.

    Code without the project's hooks, such as ``kedro viz``, gets complete sections too.
    """

    inherits = True  # False to read the sections of one environment only

    def __getitem__(self, key: str) -> Any:
        """Return the merged content of the files that this key names."""
        if key == "parameters" and self.inherits and key not in self:
            from ktpfl_pipeline.config import reading

            self[key] = reading.sections(self)
        return super().__getitem__(key)


# The documentation says `--pipelines=NAME`. Kedro 1.7 takes `--pipeline` too, and would say so at every run.
warnings.filterwarnings("ignore", message="Option '--pipeline' is deprecated")

HOOKS = (ProjectHooks(),)
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)  # outside a project it would take silence for consent

CONF_SOURCE = "conf" if (project_folder() / "conf").is_dir() else str(Path(__file__).with_name("conf"))
CONFIG_LOADER_CLASS = InheritingConfigLoader
CONFIG_LOADER_ARGS: dict[str, Any] = {
    "base_env": "base",
    "default_run_env": "local",
    # An overlay such as conf/quick names only what it changes, at any depth.
    "merge_strategy": {"parameters": "soft", "tracking": "soft"},
    "config_patterns": {"tracking": ["tracking*", "tracking*/**"]},
}
