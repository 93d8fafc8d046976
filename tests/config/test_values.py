"""Values in YAML: a real client's file is read with the rules of the files under conf/."""

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from ktpfl_pipeline.config.values import load
from ktpfl_pipeline.core.errors import InputError

FILE = Path("x.yml")


@pytest.mark.parametrize(
    "value",
    [
        *("007", "0", "0.05", "'010'", "[0, 00]", "'1:30'", "2024-01-05", "h:5000", "1e-3", "1E5", "-2e+3", "1.e3"),
        *("1.5e-3", ".5e-2", "1_0.5e1", "e3", "1e", "1e-3x", "yes", "off", "~", "1_000", "0x1f", ".inf", "'1e-3'"),
    ],
)
def test_a_value_is_read_as_under_conf(value: str) -> None:
    text = f"a: {value}  # 010"
    assert load(FILE, text.encode()) == OmegaConf.to_container(OmegaConf.create(text))
    with pytest.raises(InputError, match="010"):  # as a value and not in a comment
        load(FILE, text.replace("#", "\nb:").encode())


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "{x: {a: 1, a: 1}}", "1: a\n'1': b"])
def test_a_name_that_occurs_twice_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="twice"):
        load(FILE, text.encode())


def test_a_number_that_yaml_changes_is_refused() -> None:
    with pytest.raises(InputError, match=r"x\.yml, line 2: YAML reads 010 as 8\. Write 10"):
        load(FILE, b"a: 1\nb: 010")


def test_nothing_that_is_read_runs_code() -> None:
    with pytest.raises(yaml.YAMLError, match="python"):
        load(FILE, b"a: !!python/object/apply:os.getcwd []")
