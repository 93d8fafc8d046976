import subprocess

from ktpfl_pipeline.analysis import provenance


def test_the_command_is_what_one_types():
    assert provenance.command(["/home/me/.venv/bin/kedro", "run", "--params=a.b=x y"]) == "kedro run '--params=a.b=x y'"
    assert (
        provenance.command(["/site/ktpfl_pipeline/__main__.py", "--env=quick"])
        == "python -m ktpfl_pipeline --env=quick"
    )
    assert provenance.command(["/usr/bin/pytest"]) == "pytest"
    secret = provenance.command(["kedro", "run", "--params=x.source=http://anna:s3cret@host/f"])
    assert secret == "kedro run --params=x.source=http://anna:***@host/f"


def test_a_repository_that_has_the_package_installed_is_not_its_own(tmp_path, monkeypatch):
    package = tmp_path / ".venv" / "ktpfl_pipeline"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "mine.py").touch()
    as_somebody = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    for said in (["init", "-q"], ["add", "mine.py"], [*as_somebody, "commit", "-qm", "Mine"]):
        subprocess.run(["git", "-C", str(tmp_path), *said], check=True)
    monkeypatch.setattr(provenance, "PACKAGE", package)
    assert provenance._git("rev-parse", "HEAD")
    assert provenance._here.__wrapped__()[0] == ""


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
