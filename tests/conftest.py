"""Options and fixtures of all tests."""

from collections.abc import Iterator

import pytest

from ktpfl_pipeline.core import settings

pytest_plugins = ["shared", "report_prose", "pytester"]
FIXTURES = ("finished_runs", "empty_store", "projects")
"""Modules of fixtures that import torch and Kedro."""

LONGEST = [
    "test_campaign.py",
    "test_contract.py",
    "test_cluster.py",
    "test_end_to_end.py",
    "test_methods.py",
    "test_tuning.py",
    "test_real_faults.py",
    "test_sweep.py",
    "test_conf.py",
    "test_resume.py",
    "test_comparison.py",
    "test_engine.py",
    "test_tracking.py",
    "test_in_memory.py",
    "test_pipeline_registry.py",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options: ``pytest tests/devices --device=cuda`` runs on a real GPU instead of the emulated GPU."""
    parser.addoption("--device", choices=["pretended", "cuda"], default="pretended", help="what tests/devices run on")
    parser.addoption("--all-ways", action="store_true", help="let all methods there meet each precision")


def pytest_configure(config: pytest.Config) -> None:
    """Load the modules of fixtures, except in the process that only distributes tests, for which the others wait."""
    if config.getoption("dist", "no") == "no":
        for name in FIXTURES:
            config.pluginmanager.import_plugin(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest files, so that no process is idle for long while another one runs the last file."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session", autouse=True)
def bfloat16_on_any_processor() -> Iterator[None]:
    """Allow bfloat16 on every CPU, even if torch's routines are slow there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "has_bfloat16", lambda device: True)
        yield
