"""The page on real clients: its files are those of the example, which runs."""

import re
from pathlib import Path

from real_clients import NoLink, run

from ktpfl_flower import example, operations

PAGE = (Path(__file__).parents[2] / "docs" / "real_clients.md").read_text("utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_its_federation_runs(tmp_path):
    example.main([str(tmp_path), "--clients", "2"])
    assert (tmp_path / "anna.yml").read_text() in BLOCKS
    shown = next(block for block in BLOCKS if "methods:" in block)
    assert shown == example.SERVER.format(clients=2, project="../../..")
    (tmp_path / "federation.yml").write_text(shown.replace("../../..", ".").replace("rounds: 3", "rounds: 1"))
    done = run(tmp_path, NoLink([tmp_path / f"{name}.yml" for name in ("anna", "bert")]))
    assert len(done.history) == 1
    assert (tmp_path / "kept/client-0/model.pt").exists()
    assert done.class_names == [] and len(done.label_counts) == 2


def test_the_example_names_the_commands_of_the_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example.main([])
    told = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert len(told) == 3
    assert all(f"\n{command}\n" in PAGE for command in told)


def test_it_names_the_methods_that_were_tried():
    (named,) = re.findall(r"- Methods other than (.*?)\. Others", PAGE, re.DOTALL)
    assert re.findall(r"`(\w+)`", named) == list(operations.TRIED)
