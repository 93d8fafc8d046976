"""The settings of this project for Kedro."""

import warnings
from pathlib import Path
from typing import Any

from kedro.config import OmegaConfigLoader

from ktpfl_pipeline.config.reading import project_folder
from ktpfl_pipeline.hooks import ProjectHooks

__all__ = ["project_folder"]  # for `ui`


class InheritingConfigLoader(OmegaConfigLoader):
    """Kedro's configuration loader, which adds to each section of the parameters the settings that it inherits.

    Code that does not use the project's hooks, such as ``kedro viz``, therefore gets complete sections too.
    """

    inherits = True  # False: return sections without the settings that they inherit

    def __getitem__(self, key: str) -> Any:
        """Return the merged content of the files for a key such as ``parameters``."""
        if key == "parameters" and self.inherits and key not in self:
            from ktpfl_pipeline.config import reading

            self[key] = reading.sections(self)
        return super().__getitem__(key)


# The documentation uses `--pipelines=NAME`. Kedro 1.7 also has `--pipeline`, and would warn about it in every run.
warnings.filterwarnings("ignore", message="Option '--pipeline' is deprecated")

HOOKS = (ProjectHooks(),)
DISABLE_HOOKS_FOR_PLUGINS = ("kedro-telemetry",)  # outside a project it takes a missing answer for consent

CONF_SOURCE = "conf" if (project_folder() / "conf").is_dir() else str(Path(__file__).with_name("conf"))
CONFIG_LOADER_CLASS = InheritingConfigLoader
CONFIG_LOADER_ARGS: dict[str, Any] = {
    "base_env": "base",
    "default_run_env": "local",
    # An environment such as conf/quick contains only the settings that it changes, at any depth.
    "merge_strategy": {"parameters": "soft", "tracking": "soft"},
    "config_patterns": {"tracking": ["tracking*", "tracking*/**"]},
}
