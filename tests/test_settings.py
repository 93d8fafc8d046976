"""Parameters without the project's hooks, as ``kedro viz`` asks for them."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from kedro.framework.context import KedroContext
from kedro.framework.project import configure_project

from ktpfl_pipeline import settings
from ktpfl_pipeline.config import reading
from ktpfl_pipeline.settings import InheritingConfigLoader

ROOT = Path(__file__).parents[1]


@pytest.fixture
def loader() -> InheritingConfigLoader:
    return settings.CONFIG_LOADER_CLASS(str(ROOT / "conf"), env="quick", **settings.CONFIG_LOADER_ARGS)


def test_sections_have_what_they_inherit(loader: InheritingConfigLoader) -> None:
    before = reading.sections(loader)
    assert "like" not in loader["parameters"]["hetero_digits"]
    assert loader["parameters"] == before == reading.sections(loader)
    assert loader["tracking"]["enabled"] is True


def test_kedro_can_make_settings_of_them(loader: InheritingConfigLoader) -> None:
    """It does so with every parameter that a node names with its type."""
    configure_project("ktpfl_pipeline")
    context = KedroContext(str(ROOT), loader, "quick", "ktpfl_pipeline", Mock())
    assert context.params["hetero_digits"].rounds == loader["parameters"]["hetero_digits"]["rounds"]
