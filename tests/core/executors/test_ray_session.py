"""Joining a Ray cluster: what is refused before anything is sent there. What runs on one is in test_cluster.py."""

from importlib.util import find_spec
from types import SimpleNamespace

import forked
import pytest

from ktpfl_pipeline.core import errors, executors
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors import ray_session
from ktpfl_pipeline.core.settings import Compute, ExecutorSettings, Ray

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'")


def test_another_torch_on_another_machine() -> None:
    there = {**ray_session.about(), "torch": "1.0", "machine": "far"}
    with pytest.raises(InputError, match=r"far has torch 1\.0, and .* install the same on all"):
        ray_session.check_versions([ray_session.about(), there])


def test_another_source_on_another_machine() -> None:
    there = {**ray_session.about(), "ktpfl_pipeline": "source 1234"}
    with pytest.raises(InputError, match="ktpfl_pipeline source 1234"):
        ray_session.check_versions([there])


def test_other_instructions_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ray_session.check_versions([{**ray_session.about(), "instructions": "ABACUS"}])
    assert "ABACUS" in caplog.text


def join_nobody() -> str:
    with pytest.raises(InputError) as refused:
        ray_session.Session(Ray("127.0.0.1:1", 2))
    return str(refused.value)


def test_a_cluster_that_does_not_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """In a process that is in no cluster yet: nobody listens at port 1."""
    said = forked.result(join_nobody)
    assert said.startswith("compute.executor has ray at '127.0.0.1:1', and that cluster cannot be joined from here (")
    assert capfd.readouterr() == ("", "")


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs ray, not installed: run .* ray, or choose processes"):
        executors.create(Compute("cpu", executor=ExecutorSettings(ray=Ray(workers=2))))


def test_the_store_fits_into_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the memory, at most nine tenths of the shared memory, and never less than Ray needs."""
    free, room = 2**30, ray_session.object_store()
    assert room >= 100 * 2**20
    monkeypatch.setattr(ray_session.os, "statvfs", lambda place: SimpleNamespace(f_bavail=10, f_frsize=free))
    for memory, store in ((3 * free, free), (300 * free, 9 * free), (free // 100, 100 * 2**20)):
        monkeypatch.setattr(ray_session.resources, "free_memory", lambda memory=memory: memory)
        assert ray_session.object_store() == store
