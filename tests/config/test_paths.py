"""Paths to settings: the dots of a method's dotted path separate nothing."""

from typing import Any

import pytest
from cases import case
from experiment import EXPERIMENT
from omegaconf import OmegaConf

from ktpfl_pipeline.config import parsing, paths
from ktpfl_pipeline.core.errors import InputError

PATH = "ktpfl_pipeline.methods.local:LocalMatched"


def params(*given: str) -> Any:
    """Return what Kedro makes of ``--params``."""
    return OmegaConf.to_container(OmegaConf.from_dotlist(list(given)))


def test_a_path_has_names() -> None:
    for path, names in (
        ("rounds", ["rounds"]),
        ("training.epochs", ["training", "epochs"]),
        ("methods", ["methods"]),
        ("methods.", ["methods", ""]),
        ("methods.kt_pfl.rho", ["methods", "kt_pfl", "rho"]),
        (f"methods.{PATH}.work", ["methods", PATH, "work"]),
        (f"methods.{PATH}", ["methods", PATH]),
        ("methods.nets:Wide.a.b", ["methods", "nets:Wide", "a", "b"]),
        ("methods.nets:Wide-a", ["methods", "nets:Wide-a"]),
        ("training.nets.a:B", ["training", "nets", "a:B"]),
    ):
        with case(path):
            assert paths.split(path) == names


def test_params_reach_a_method_by_its_dotted_path() -> None:
    given = params(f"mine.methods.{PATH}.work=0.5", f"mine.methods.{PATH}.public=false", "mine.methods.kt_pfl.rho=3.0")
    section = parsing.merged({"mine": {**EXPERIMENT, "training": {}}}, given)["mine"]
    assert section["methods"][PATH] == {"work": 0.5, "public": False}
    assert parsing.parse("mine", section).methods["kt_pfl"] == {"rho": 3.0, "divergence_weight": None}
    tuning = parsing.merged({"tune_mine": {"trials": 1}}, params(f"tune_mine.spaces.{PATH}.work.high=2.0"))
    assert tuning["tune_mine"]["spaces"] == {PATH: {"work": {"high": 2.0}}}


def test_a_method_named_by_dots_only() -> None:
    for name, values, meant in (
        ("my_package", {"my_method": {"Nearest": {"k": 3}}}, "my_package.my_method:Nearest.k=3"),
        ("nearest", {"Nearest": {"k": 3}}, "nearest:Nearest.k=3"),
        ("fedmdd", {"epochs": 3}, ""),
        ("my_package", {"a": {"k": 3}, "b": {"k": 3}}, ""),
    ):
        assert paths.with_colon(name, values) == meant


def test_names_that_are_not_dotted_paths_are_kept() -> None:
    given = params(f"mine.methods.{PATH}.work=0.5", "mine.methods.ktpfl_pipeline.methods.typo=1", "mine.rounds=2")
    section = parsing.merged({"mine": EXPERIMENT}, given)["mine"]
    assert section["rounds"] == 2
    with pytest.raises(InputError, match=r"^mine\.methods\.ktpfl_pipeline\.methods\.typo is 1; "):
        parsing.parse("mine", section)
    for odd in (None, 5, [], {}, {5: {6: 7}}, {"kt_pfl": None}):
        assert paths.rejoined({"methods": odd}) == {"methods": odd}
        assert paths.rejoined(odd) == odd
