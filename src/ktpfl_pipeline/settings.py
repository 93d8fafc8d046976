"""The settings of this project for Kedro."""

import os
import warnings
from pathlib import Path
from typing import Any

from kedro.config import MissingConfigException, OmegaConfigLoader

from ktpfl_pipeline import hooks
from ktpfl_pipeline.config.reading import project_folder


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

HOOKS = (hooks.ProjectHooks(),)
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


def project_tracker() -> Any:
    """Return the `MlflowTracker` of the project in this folder.

    Raises InputError if tracking is off, or the configuration cannot be read.
    """
    from ktpfl_pipeline import tracking
    from ktpfl_pipeline.core.errors import InputError

    project = project_folder()
    loader = OmegaConfigLoader(str(project / CONF_SOURCE), env=os.environ.get("KEDRO_ENV"), **CONFIG_LOADER_ARGS)
    hooks.check_folder(project)
    try:
        hooks.configure_tracking(loader, project)
    except MissingConfigException as error:
        raise InputError(str(error)) from error
    if isinstance(found := tracking.current(), tracking.MlflowTracker):
        return found
    raise InputError("Tracking is off, so there is nothing in MLflow: set `enabled: true` in conf/base/tracking.yml.")
