from ktpfl_pipeline.analysis import provenance


def test_the_command_is_what_one_types():
    assert provenance.command(["/home/me/.venv/bin/kedro", "run", "--params=a.b=x y"]) == "kedro run '--params=a.b=x y'"
    assert (
        provenance.command(["/site/ktpfl_pipeline/__main__.py", "--env=quick"])
        == "python -m ktpfl_pipeline --env=quick"
    )
    assert provenance.command(["/usr/bin/pytest"]) == "pytest"


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    provenance._here.cache_clear()
    try:
        made = provenance.here_and_now()
    finally:
        provenance._here.cache_clear()
    assert made.commit == ""
    assert made.date[:2] == "20"
    assert "cores" in made.machine
    assert "torch" in made.versions
