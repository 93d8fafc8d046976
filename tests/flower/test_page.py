"""The page on real clients: its files are such, and what it begins with runs."""

import re
from pathlib import Path

from real_clients import NoLink

from ktpfl_pipeline.flower import operations, serve

PAGE = Path(__file__).parents[2] / "docs" / "real_clients.md"


def test_its_federation_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(program, PAGE.name, "exec"), {})
    files = re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.DOTALL)
    for name, content in files:
        Path(name).write_text(content)
    clients = [Path(name) for name, _ in files if "federation" not in name]
    done = serve.run(Path("try/federation.yml"), NoLink(clients))
    assert len(done.history) == 3
    assert Path("try/kept/client-0/model.pt").exists()


def test_it_names_the_methods_that_were_tried():
    (named,) = re.findall(r"- Methods: (.*?)\. Others", PAGE.read_text("utf-8"), re.DOTALL)
    assert re.findall(r"`(\w+)`", named) == list(operations.TRIED)
