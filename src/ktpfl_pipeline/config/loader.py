"""Kedro's loader of conf/, for whoever asks it for parameters without the project's hooks, as ``kedro viz`` does."""

from typing import Any

from kedro.config import OmegaConfigLoader


class InheritingConfigLoader(OmegaConfigLoader):
    """A loader whose parameters are sections completed by what they inherit.

    Attributes:
        inherits: whether they are; not if only the sections of one environment are read.
    """

    inherits = True

    def __getitem__(self, key: str) -> Any:
        """Return the merged content of the files that this key names."""
        if key == "parameters" and self.inherits and key not in self:
            from ktpfl_pipeline.config import reading

            self[key] = reading.sections(self)
        return super().__getitem__(key)
