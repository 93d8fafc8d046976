"""Values in YAML: a real client's file is read with the rules of the files under conf/."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from ktpfl_pipeline.config.values import load
from ktpfl_pipeline.core.errors import InputError


def read(folder: Path, text: str) -> Any:
    (folder / "x.yml").write_text(text)
    return load(folder / "x.yml")


@pytest.mark.parametrize(
    "value",
    [
        *("007", "0", "0.05", "'010'", "[0, 00]", "'1:30'", "2024-01-05", "h:5000", "1e-3", "1E5", "-2e+3", "1.e3"),
        *("1.5e-3", ".5e-2", "1_0.5e1", "e3", "1e", "1e-3x", "yes", "off", "~", "1_000", "0x1f", ".inf", "'1e-3'"),
    ],
)
def test_a_value_is_read_as_under_conf(tmp_path: Path, value: str) -> None:
    text = f"a: {value}  # 010"
    assert read(tmp_path, text) == OmegaConf.to_container(OmegaConf.create(text))
    with pytest.raises(InputError, match="010"):  # as a value and not in a comment
        read(tmp_path, text.replace("#", "\nb:"))


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "{x: {a: 1, a: 1}}", "1: a\n'1': b"])
def test_a_name_that_occurs_twice_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="twice"):
        read(tmp_path, text)


def test_a_number_that_yaml_changes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.yml, line 2: YAML reads 010 as 8\. Write 10"):
        read(tmp_path, "a: 1\nb: 010")


def test_nothing_that_is_read_runs_code(tmp_path: Path) -> None:
    with pytest.raises(yaml.YAMLError, match="python"):
        read(tmp_path, "a: !!python/object/apply:os.getcwd []")


def test_nested_aliases_are_refused_before_they_are_expanded(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 2]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    with pytest.raises(InputError, match=r"more than 20,000 values after its aliases are expanded"):
        read(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("text", ["[" * 10**6 + "010", "{a: " * 10**5, "- " * 10**5, f"a: &a {'[' * 200 + ']' * 200}"])
def test_values_that_are_nested_too_deeply_are_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"x\.yml is nested too deeply to be read"):
        read(tmp_path, text)
