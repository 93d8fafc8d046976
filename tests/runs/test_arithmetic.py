"""What `auto` chooses, and what the choice is part of.

Times of trials are given, not taken: what a machine is fast at is no matter of tests.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from project_copy import EXPERIMENT, Project

from ktpfl_pipeline import in_memory, tracking
from ktpfl_pipeline.analysis.study import check_settings
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core import settings
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.identity import digest
from ktpfl_pipeline.core.settings import Compute, ExecutorSettings
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.runs import arithmetic
from ktpfl_pipeline.runs.arithmetic import Arithmetic, possible, settle
from ktpfl_pipeline.runs.identity import Job, identity
from ktpfl_pipeline.runs.preparation import prepare

SECTION: dict[str, Any] = {
    "architectures": {"cnn_bn": 3, "mlp": 2},
    "clients": 5,
    "private": {"source": "digits"},
    "public": {"batch": 30},
    "image": {"channels": 1, "size": 28},
    "partition": {"scheme": "two_labels"},
    "training": {"epochs": 1, "batch_size": 32},
    "distillation": {"epochs": 1},
}
PLAIN, LAST = "float32 contiguous", "float32 channels_last"
Given = Callable[[dict[str, dict[str, float]]], list[list[str]]]


def experiment(**compute: Any) -> Experiment:
    training = {"training": {**SECTION["training"], **compute.pop("training", {})}}
    return parsing.parse("mine", {**SECTION, **training, "compute": {"device": "cpu", **compute}})


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return prepare(experiment(), Path())


@pytest.fixture(scope="module")
def features(data: FederatedData) -> FederatedData:
    return replace(data, private=replace(data.private, inputs=torch.zeros(len(data.private.inputs), 4)))


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, nothing said yet, and checkpoints of one's own."""
    monkeypatch.setattr(arithmetic.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    monkeypatch.setattr(arithmetic, "_said", set())
    monkeypatch.setattr(tracking, "current", lambda: tracking.Tracker(tmp_path / "models"))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Put times by architecture and arithmetic, in ms, in the place of trials, and return what was tried."""

    def put(times: dict[str, dict[str, float]]) -> list[list[str]]:
        tried: list[list[str]] = []

        def timed(_: Any, __: Any, architecture: str, ways: Sequence[Arithmetic]) -> list[float]:
            tried.append([architecture, *map(str, ways)])
            return [times[architecture][str(way)] / 1e3 for way in ways]

        monkeypatch.setattr(arithmetic, "_timed", timed)
        return tried

    return put


def both(plain: float, last: float) -> dict[str, dict[str, float]]:
    return {name: {PLAIN: plain, LAST: last} for name in ("cnn_bn", "mlp")}


class TestPossible:
    """What the settings leave to choose from; the first is the plainest."""

    @pytest.mark.parametrize(
        ("compute", "ways"),
        [
            ({}, [PLAIN]),
            ({"dtype": "bfloat16", "memory_format": "channels_last"}, ["bfloat16 channels_last"]),
            ({"dtype": "auto"}, [PLAIN]),
            ({"memory_format": "auto"}, [PLAIN, LAST]),
            ({"dtype": "auto:bfloat16"}, [PLAIN, "bfloat16 contiguous"]),
            ({"dtype": "float64", "memory_format": "auto"}, ["float64 contiguous", "float64 channels_last"]),
            (
                {"dtype": "auto:bfloat16", "memory_format": "auto", "training": {"privacy": {"noise_multiplier": 1.0}}}
                | {"architectures": ["mlp"]},
                [PLAIN],
            ),
        ],
        ids=str,
    )
    def test_on_a_cpu(self, compute: dict[str, Any], ways: list[str], data: FederatedData) -> None:
        assert list(map(str, possible(self.form(**compute), data))) == ways

    def test_features_have_no_channels(self, features: FederatedData) -> None:
        assert list(map(str, possible(self.form(memory_format="auto"), features))) == [PLAIN]

    def test_private_training_of_features_in_any_order_excludes_bfloat16(self, features: FederatedData) -> None:
        private = {"training": {"privacy": {"noise_multiplier": 1.0}}, "architectures": ["mlp"]}
        asked = replace(
            self.form(dtype="auto:bfloat16", **private), compute=Compute("cpu", "auto:bfloat16", "channels_last")
        )
        assert list(map(str, possible(asked, features))) == [LAST]

    def test_bfloat16_needs_instructions(self, data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settings, "has_bfloat16", lambda device: device != "cpu")
        assert list(map(str, possible(self.form(dtype="auto:bfloat16"), data))) == [PLAIN]

    def test_on_a_gpu_tf32_is_of_float32s_class(self, data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Compute, "place", lambda _: torch.device("cuda"))
        assert [way.dtype for way in possible(self.form(dtype="auto"), data)] == ["float32", "tf32"]
        found = possible(self.form(dtype="auto:bfloat16"), data)
        assert [way.dtype for way in found] == ["float32", "tf32", "bfloat16"]

    @staticmethod
    def form(**compute: Any) -> Experiment:
        changes = {name: compute.pop(name) for name in ("training", "architectures") if name in compute}
        return parsing.form("mine", {**SECTION, **changes, "compute": {"device": "cpu", **compute}})


class TestChoice:
    def test_without_a_question_nothing_is_tried(self, data: FederatedData, given: Given) -> None:
        tried = given({})
        for compute in ({}, {"dtype": "float64"}, {"dtype": "auto"}, {"memory_format": "channels_last"}):
            settle(experiment(**compute), data, "mine")
        assert tried == []
        assert settle(experiment(dtype="auto"), data) == experiment()

    @pytest.mark.parametrize("order", ["contiguous", "channels_last", "auto"])
    @pytest.mark.parametrize("kind", ["data", "features"])
    def test_results_are_accepted_as_those_of_the_settings(
        self, kind: str, order: str, given: Given, request: pytest.FixtureRequest
    ) -> None:
        """By the reports of comparisons, and of sweeps and tunings, which compare what all their methods share."""
        given(both(10, 8))
        asked = experiment(memory_format=order)
        settled = settle(asked, request.getfixturevalue(kind))
        check_settings("The result was", settled.settings(), asked.settings())
        check_settings("The results were", settled.shared(), asked.shared())

    @pytest.mark.parametrize(
        ("times", "format"),
        [
            (both(10, 8), "channels_last"),
            (both(10, 9.8), "contiguous"),  # so little is noise
            (both(8, 10), "contiguous"),
            ({"cnn_bn": {PLAIN: 10, LAST: 8}, "mlp": {PLAIN: 1, LAST: 3}}, "channels_last"),  # 3 of 5 are cnn_bn
            ({"cnn_bn": {PLAIN: 10, LAST: 9}, "mlp": {PLAIN: 1, LAST: 9}}, "contiguous"),
        ],
    )
    def test_the_fastest_over_all_clients_or_the_plainest_where_it_is_close(
        self, times: dict[str, dict[str, float]], format: str, data: FederatedData, given: Given
    ) -> None:
        given(times)
        chosen = settle(experiment(memory_format="auto"), data).compute
        assert (chosen.dtype, chosen.memory_format) == ("float32", format)

    def test_one_line_says_what_and_why_once(
        self, data: FederatedData, given: Given, caplog: pytest.LogCaptureFixture
    ) -> None:
        given({"cnn_bn": {PLAIN: 10, LAST: 8}, "mlp": {PLAIN: 1.25, LAST: 1}})
        with caplog.at_level(logging.INFO):
            for _ in range(2):
                settle(experiment(memory_format="auto"), data, "mine")
        assert caplog.messages == [
            "compute is float32 channels_last, as auto chose. Milliseconds a step, cnn_bn: float32 contiguous 10, "
            "float32 channels_last 8; mlp: float32 contiguous 1.25, float32 channels_last 1."
        ]

    def test_a_machine_is_timed_once(self, data: FederatedData, given: Given, tmp_path: Path) -> None:
        tried = given(both(10, 8))
        for _ in range(2):
            settle(experiment(memory_format="auto"), data)
        assert tried == [["cnn_bn", PLAIN, LAST], ["mlp", PLAIN, LAST]]
        (machine,) = json.loads((tmp_path / "cache" / "trials.json").read_text()).items()
        assert torch.__version__ in machine[0]
        assert machine[1]["mlp, 1x28x28, 10 classes, batches of 32"] == {PLAIN: 0.01, LAST: 0.008}
        for other in ({"threads": 2}, {"training": {"batch_size": 16}}):
            settle(experiment(memory_format="auto", **other), data)
        assert len(tried) == 6

    @pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', "{", '{"x": {"y": {"float32 contiguous": "1"}}}'])
    def test_a_damaged_cache_is_none(self, content: str, data: FederatedData, given: Given, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "trials.json").write_text(content)
        given(both(10, 8))
        assert settle(experiment(memory_format="auto"), data).compute.memory_format == "channels_last"

    def test_a_cache_that_cannot_be_written_is_none(self, data: FederatedData, given: Given, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file")
        given(both(10, 8))
        assert settle(experiment(memory_format="auto"), data).compute.memory_format == "channels_last"


class TestIdentity:
    """A run is the same whether `auto` chose its arithmetic or the settings say it."""

    def test_is_that_of_the_chosen_setting(self, data: FederatedData, given: Given) -> None:
        given(both(10, 8))
        auto, said = settle(experiment(memory_format="auto"), data, "mine"), experiment(memory_format="channels_last")
        one, other = (identity(Job("mine", "kt_pfl", each, data), 0) for each in (auto, said))
        assert one == other
        assert one["compute.memory_format"] == "channels_last"
        plain = experiment()
        assert digest(one) != digest(identity(Job("mine", "kt_pfl", plain, data), 0))

    def test_what_was_begun_goes_on_as_it_began(
        self, data: FederatedData, given: Given, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        asked = experiment(memory_format="auto")
        given(both(10, 8))
        begun = settle(asked, data, "mine")
        (tmp_path / "cache" / "trials.json").unlink()  # or another machine, which would choose otherwise
        arithmetic._said.clear()
        caplog.clear()
        tried = given(both(8, 10))
        with caplog.at_level(logging.INFO):
            assert settle(asked, data, "mine") == begun
        assert tried == []
        assert caplog.messages == [f"mine.compute is {LAST}, as auto chose when its runs started."]
        assert settle(asked, data, "other").compute.memory_format == "contiguous"


def test_two_processes_at_once_choose_the_same(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for the other's choice, though it would have timed other seconds. Here they are two threads."""
    both_time = threading.Barrier(2)

    def timed(*_: Any) -> list[float]:
        with contextlib.suppress(threading.BrokenBarrierError):
            both_time.wait(timeout=0.2)
        return [2.0, 1.0] if threading.current_thread().name.endswith("_0") else [1.0, 2.0]

    monkeypatch.setattr(arithmetic, "_timed", timed)
    with ThreadPoolExecutor(2) as two:
        found = [two.submit(settle, experiment(memory_format="auto"), data, "mine") for _ in range(2)]
    assert len({each.result().compute.memory_format for each in found}) == 1


@pytest.mark.parametrize(("workers", "chosen"), [(1, "contiguous"), (2, "channels_last")])
def test_results_are_those_of_the_chosen_setting_to_the_bit(workers: int, chosen: str, given: Given) -> None:
    given(both(10, 12 if chosen == "contiguous" else 8))
    settings = {name: SECTION[name] for name in ("image", "training", "distillation")} | {"public": {"batch": 30}}

    def result(**compute: Any) -> Any:
        compute = {"device": "cpu", **compute}
        fed = in_memory.federation("digits", 5, SECTION["architectures"], compute=compute, **settings)
        (run,) = in_memory.run("kt_pfl", fed, rounds=1).runs
        kept = asdict(run)
        for record in kept["history"]:
            del record["seconds"]
        return kept, replace(fed.compute, executor=ExecutorSettings())

    said, auto = (
        result(memory_format=chosen),
        result(dtype="auto", memory_format="auto", executor={"processes": workers}),
    )
    assert auto == said


def test_a_whole_run_with_a_real_trial(untracked: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command to the report: what was chosen is in checkpoint and result, and the report takes these."""
    monkeypatch.undo()  # the project's own tracker
    monkeypatch.setattr(arithmetic.platformdirs, "user_cache_dir", lambda *_, **__: str(untracked.folder / "cache"))
    untracked.run(compute={"device": "cpu", "dtype": "auto", "memory_format": "auto"}, rounds=1, seeds=[0])
    models, outputs = (untracked.folder / "data" / place / EXPERIMENT for place in ("06_models", "07_model_output"))
    (chosen,) = json.loads((models / "compute.json").read_text()).values()
    settings = untracked.checkpoint("kt_pfl")["settings"]
    assert f"{settings['compute.dtype']} {settings['compute.memory_format']}" == chosen
    made = json.loads((outputs / "kt_pfl" / "result.json").read_text())["settings"]["compute"]
    assert f"{made['dtype']} {made['memory_format']}" == chosen
    (page,) = (untracked.folder / "data" / "08_reporting" / EXPERIMENT).rglob("report.md")
    assert chosen.split()[0] in page.read_text()


def test_steps_are_timed_on_the_samples_of_a_client(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[LabeledDataset] = []

    def step_seconds(_: Any, __: Any, samples: LabeledDataset, *rest: Any) -> list[float]:
        seen.append(samples)
        return [1.0, 2.0]

    monkeypatch.setattr(arithmetic, "step_seconds", step_seconds)
    timed = experiment(memory_format="auto")
    assert arithmetic.trial(timed, data, possible(timed, data)) == {"cnn_bn": [1.0, 2.0], "mlp": [1.0, 2.0]}
    largest = max((own.train for own in data.seeds[0].clients.values()), key=len)
    assert all(torch.equal(samples.inputs, largest.inputs) for samples in seen)
    assert all(torch.equal(samples.labels, largest.labels) for samples in seen)
