"""A server's file through the main package's runs, results, reports and MLflow; messages are bytes, without Flower."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from blank import blank_figures
from project_copy import PowerCut, Project
from real_clients import COMPARED, NoLink, deal_out, in_one_process, kept_model, planned

from ktpfl_flower.client.member import Member
from ktpfl_flower.server import federation_file, job
from ktpfl_flower.wire import Packet
from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import FinishedRun, summarize
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.reports import wire
from ktpfl_pipeline.reports.model import Notes, Table

NAME = "mine"


def prepared(project: Project, **beside: Any) -> list[Path]:
    """Give a project a server's file and two real clients, and return their files."""
    folder = project.folder / "data" / "01_raw"
    given = {"methods": ["kt_pfl", "fedmd", "local"], "project": "../..", **beside}
    return deal_out(folder, "kt_pfl", ("mlp", "cnn_bn"), evaluation={"adapt_epochs": [0]}, **given)


def run_all(project: Project, link: NoLink) -> Path:
    with blank_figures():
        return job.run(project.folder / "data" / "01_raw" / "federation.yml", link)


@pytest.fixture(scope="module")
def project(tracked: Callable[[], Project]) -> Project:
    """A project whose clients were compared."""
    project = tracked()
    run_all(project, NoLink(prepared(project)))
    return project


@pytest.fixture(scope="module")
def run(project: Project) -> dict[str, Any]:
    file = project.folder / "data" / "07_model_output" / NAME / "kt_pfl" / "result.json"
    (run,) = json.loads(file.read_text())["runs"]
    return dict(run)


def test_it_is_the_run_of_one_process_bit_for_bit(project: Project, run: dict[str, Any]) -> None:
    here, _ = in_one_process(project.folder / "data" / "01_raw")
    assert here.coefficients is not None and run["coefficients"] == here.coefficients[-1].tolist()
    for ours, theirs in zip(here.history, run["history"], strict=True):
        assert {name: theirs[name] for name in COMPARED} == {name: getattr(ours, name) for name in COMPARED}


def test_each_client_keeps_its_model_and_the_server_none(project: Project) -> None:
    raw = project.folder / "data" / "01_raw"
    assert all(kept_model(raw, n, method).exists() for n in range(2) for method in ("kt_pfl", "fedmd", "local"))
    assert not list((project.folder / "mlruns").rglob("*.pt*"))


def test_mlflow_has_every_round_below_the_report(project: Project, run: dict[str, Any]) -> None:
    (report,) = project.reports(NAME)
    tracked = {each.data.tags["method"]: each for each in project.tracked(NAME)}
    assert set(tracked) == {"kt_pfl", "fedmd", "local"}
    assert {each.data.tags["mlflow.parentRunId"] for each in tracked.values()} == {report.info.run_id}
    points = project.client().get_metric_history(tracked["kt_pfl"].info.run_id, "accuracy/after_transfer")
    means = [fmean(record["accuracy"]["after_transfer"]) for record in run["history"]]
    assert [point.value for point in points] == pytest.approx(means)


def test_the_report_tells_what_is_known_and_what_went_over_the_wire(project: Project, run: dict[str, Any]) -> None:
    (page,) = (project.folder / "data" / "08_reporting" / f"compare_{NAME}").rglob("report.md")
    text = page.read_text()
    assert "The classes of real clients are known to them only." in text and "Theorem 1" not in text
    assert "Bytes sent by real clients" in text and "Secure aggregation" in text
    assert min(run["wire"]["received"]) > sum(sum(r["traffic"]["knowledge_up"]) for r in run["history"]) / 2
    assert run["label_counts"] == [[80], [80]]


def run_until_a_checkpoint(project: Project, files: Any) -> None:
    """Run with clients of these files until a checkpoint is written, and cut the power."""

    def cut(kind: str, n: int, answer: Packet) -> Packet:
        if any((project.folder / "data" / "06_models").rglob("checkpoint.pt")):
            raise PowerCut
        return answer

    with pytest.raises(PowerCut):
        run_all(project, NoLink(files, changes=cut))


def test_a_server_that_was_killed_goes_on_and_other_samples_are_another_run(untracked: Project) -> None:
    files, folder = prepared(untracked, methods=["kt_pfl"]), untracked.folder / "data"
    run_until_a_checkpoint(untracked, files)
    link = NoLink(files)
    run_all(untracked, link)
    result = json.loads((folder / "07_model_output" / NAME / "kt_pfl" / "result.json").read_text())
    here, _ = in_one_process(folder / "01_raw")
    assert here.coefficients is not None and result["runs"][0]["coefficients"] == here.coefficients[-1].tolist()
    assert len(list((folder / "06_models").rglob("checkpoint.pt"))) == 1  # it went on with what was there
    assert result["runs"][0]["wire"] == {}  # of which the bytes before are not known
    asked = len(link.seen)
    run_all(untracked, link)
    assert {kind for kind, *_ in link.seen[asked:]} == {"register", "end"}  # finished before
    data = folder / "01_raw" / "clients" / "0" / "data.npz"
    with np.load(data) as found:
        images, labels = found["images"], found["labels"]
    np.savez(data, images=255 - images, labels=labels)
    asked = Packet({"seed": 0, "run": "0"})
    found = [[Member(file).answer("register", asked).values["fingerprint"] for file in files] for _ in range(2)]
    assert found[0] == found[1]
    assert [said["fingerprint"] == one for said, one in zip(_registrations(link), found[0], strict=True)] == [
        False,
        True,
    ]


def test_a_server_that_is_started_again_goes_on_with_a_quorum(untracked: Project) -> None:
    files = prepared(untracked, methods=["kt_pfl"], quorum=0.5, deadline=0.05, patience=0.05)
    folder = untracked.folder / "data"
    run_until_a_checkpoint(untracked, files)
    link = NoLink(files)
    link.stop(1)
    run_all(untracked, link)
    result = json.loads((folder / "07_model_output" / NAME / "kt_pfl" / "result.json").read_text())
    assert [record["absent"] for record in result["runs"][0]["history"]] == [[], [1]]
    assert len(list((folder / "06_models").rglob("checkpoint.pt"))) == 1


def test_a_finished_comparison_is_taken_as_it_is(project: Project) -> None:
    link = NoLink(sorted((project.folder / "data" / "01_raw").glob("client-*.yml")))
    run_all(project, link)
    asked = {(kind, packet.values["run"]) for kind, _, packet, _ in link.seen if kind != "register"}
    assert len(asked) == 1 and {kind for kind, _ in asked} == {"end"}  # the method that was trained last


def test_a_client_with_other_samples_is_no_part_of_the_run_that_is_taken_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def changes(kind: str, n: int, answer: Packet) -> Packet:
        return Packet({**answer.values, "fingerprint": "other"}) if kind == "register" and n == 0 else answer

    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 3))
    (first,) = job.jobs(planned(tmp_path, patience=0.05), link)
    met = [first.met(0, tmp_path / "kept")]
    link.changes = changes
    met.append(first.met(0, tmp_path / "kept"))  # all are there: another run
    link.changes = None
    link.stop(2)
    met.append(first.met(0, tmp_path / "kept"))
    assert [sorted(each.here) for each in met] == [[0, 1, 2], [0, 1, 2], [1]]
    assert [each.clients[0].fingerprint == "other" for each in met] == [False, True, True]
    assert (
        "Node 100 is not admitted: Client 0 at node 100 has changed since the run started (fingerprint=" in caplog.text
    )
    assert met[2].why[2] == "has not registered since the server started"


def _registrations(link: NoLink) -> list[dict[str, Any]]:
    """Return what each client said of itself last."""
    return list({n: answer.values for kind, n, _, answer in link.seen if kind == "register"}.values())


def test_bytes_of_a_run_that_was_taken_up_again_are_not_told_and_it_is_said_why(run: dict[str, Any]) -> None:
    whole = FinishedRun.from_dict(run)
    results = [summarize([replace(whole, method=name, wire=sent)], {}) for name, sent in FEW.items()]
    (table, _, _, why), (alone,) = wire.blocks(Comparison(results)), wire.blocks(Comparison(results[1:]))
    assert isinstance(table, Table) and [row["method"] for row in table.rows] == ["KT-pFL"]
    assert why == alone and isinstance(why, Notes)
    assert why.entries["Not known"].startswith("for FedMD, because a run was resumed from a checkpoint")


def test_memory_of_the_server_reaches_its_arithmetic_and_another_is_no_other_run(tmp_path: Path) -> None:
    link, runs = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp",) * 2)), set[str]()
    for memory in (512, 7):
        plan = planned(tmp_path)
        compute = replace(plan.experiment.compute, server_memory=memory)
        plan = replace(plan, experiment=replace(plan.experiment, compute=compute))
        fed, _ = job.jobs(plan, link)[0].federation(0, None)
        assert fed.compute.server_memory == memory
        runs.add(fed.executor.attendance.run)
    assert len(runs) == 1


FEW: dict[str, dict[str, list[int]]] = {"kt_pfl": {"sent": [1, 2], "received": [3, 4]}, "fedmd": {}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": {"scheme": "two_labels"}}, "experiment.partition is set, but only the clients can"),
        ({"architectures": ["lenet"]}, "experiment.architectures is set"),
        ({"private": {"source": "digits"}}, "experiment.private is set"),
        ({"evaluation": {"global_samples": 9}}, "experiment.evaluation.global_samples is set"),
        ({"public": {"source": "open_part"}}, "experiment.public.source is open_part, but the server has no private"),
        ({"clients": None}, "experiment.clients is missing"),
        ({"compare": ["fedmd"]}, "experiment.compare is set; list the methods under methods"),
        ({"exchange": "parameters"}, "experiment.exchange is parameters; with real clients it must be predictions"),
        ({"hyperparameters": "tuned"}, "experiment.hyperparameters is tuned; with real clients it must be configured"),
        ({"knowledge": {"noise": 0.1}}, "experiment.knowledge.noise is 0.1; with real clients it must be 0.0"),
        ({"compute": {"executor": "processes"}}, "experiment.compute.executor is set"),
        ({"methods": {"kt_pfl": {"rho": -1.0}}}, r"kt_pfl\.rho is -1\.0"),
    ],
)
def test_what_is_the_clients_own_is_refused(changes: dict[str, Any], sentence: str) -> None:
    given = {"public": {"source": "npz:public.npz"}, "clients": 2}
    with pytest.raises(InputError, match=sentence):
        federation_file.parsed({**given, **changes})


def test_methods_that_combine_models_are_refused_before_any_is_trained(tmp_path: Path) -> None:
    """Clients say what they have when they are there, so it is the first method's meeting that tells of all."""
    link = NoLink(deal_out(tmp_path, "kt_pfl", ("mlp", "cnn_bn"), methods=["kt_pfl", "fedavg", "local"]))
    sentence = "architectures is mlp, cnn_bn, which excludes FedAvg: models are combined, which needs one architecture"
    with pytest.raises(InputError, match=sentence):
        job.jobs(planned(tmp_path), link)[0].federation(0, None)
    job.jobs(planned(tmp_path, methods=["kt_pfl", "feddf", "local"]), link)[0].federation(0, None)


def test_a_client_that_never_answers_an_evaluation_is_left_out_of_the_report_and_ends_nothing(
    untracked: Project,
) -> None:
    def changes(kind: str, n: int, answer: Packet) -> Packet:
        mute = n == 1 and link.seen[-1][2].values.get("operation") == "evaluate"
        return Packet({**answer.values, "refused": "I will not."}) if mute else answer

    link = NoLink(prepared(untracked, methods=["kt_pfl", "local"], quorum=0.5, deadline=0.05), changes=changes)
    page = run_all(untracked, link)
    result = json.loads((untracked.folder / "data" / "07_model_output" / NAME / "kt_pfl" / "result.json").read_text())
    first, second = result["final"]["after_transfer"]["per_client"]
    assert np.isfinite(first) and np.isnan(second)
    assert result["final"]["after_transfer"]["mean"] == first
    text = page.with_name("report.md").read_text()
    assert f"{100 * first:.1f}" in text and "nan" not in text.lower().replace("finance", "")


def test_a_private_run_has_a_report_with_epsilon(untracked: Project) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed here: make flower")
    training = {"epochs": 1, "batch_size": 8, "privacy": {"noise_multiplier": 1.0, "delta": 1e-3}}
    folder = untracked.folder / "data" / "01_raw"
    given = {"methods": ["kt_pfl", "local"], "project": "../..", "training": training}
    files = deal_out(folder, "kt_pfl", ("mlp",) * 2, evaluation={"adapt_epochs": [0]}, **given)
    text = run_all(untracked, NoLink(files)).with_name("report.md").read_text()
    assert "ε" in text and "KT-pFL" in text
