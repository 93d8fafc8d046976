"""The page on real clients: its files are those of the example, which runs."""

import re
from pathlib import Path

import pytest
from real_clients import NoLink, run

from ktpfl_flower import example, operations
from ktpfl_flower.server import federation_file
from ktpfl_pipeline.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs" / "real_clients.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_its_federation_runs(tmp_path, capsys):
    example.main([str(tmp_path), "--clients", "2"])
    assert (tmp_path / "anna.yml").read_text() in BLOCKS
    shown = next(block for block in BLOCKS if "methods:" in block)
    assert shown == example.SERVER.format(clients=2, project="../../..")
    (tmp_path / "federation.yml").write_text(shown.replace("../../..", ".").replace("rounds: 3", "rounds: 1"))
    done = run(tmp_path, NoLink([tmp_path / f"{name}.yml" for name in ("anna", "bert")]))
    assert len(done.history) == 1
    capsys.readouterr()
    (command,) = re.findall(r"^ktpfl (predict .*)$", PAGE, re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        main(command.replace("data/01_raw/real_clients", str(tmp_path)).split())
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and lines[0] == f"input,predicted class,{','.join(map(str, range(10)))}"
    assert len(lines) > 2
    assert done.class_names == [] and len(done.label_counts) == 2


def test_the_example_names_the_commands_of_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example.main([])
    told = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert len(told) == 3
    assert all(f"\n{command}\n" in PAGE for command in told)


@pytest.mark.parametrize("place", ["inside", "../beside/deep", "{tmp_path}/elsewhere"])
def test_the_example_s_commands_and_project_exist_wherever_it_is(capsys, tmp_path, monkeypatch, place):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    example.main([place.format(tmp_path=tmp_path)])
    run, *joins = capsys.readouterr().out.split("\n\n")[1].splitlines()
    file = Path(run.split()[3])
    assert file.exists() and all(Path(join.split()[3]).exists() for join in joins)
    assert federation_file.read(file).project == Path.cwd(), "without .., because the report's path is printed"


def test_it_names_the_methods_that_were_tried():
    (named,) = re.findall(r"- Methods other than (.*?)\. Others", PAGE, re.DOTALL)
    assert re.findall(r"`(\w+)`", named) == list(operations.TRIED)
