"""The study of learned coefficients: its images, its design, and FedDF with a running mean."""

from dataclasses import replace
from pathlib import Path

import learned_coefficients as study
import numpy as np
import pytest
import toy
from learned_coefficients import CELLS, GROUPS, RATES, ROWS, SEEDS, RunningFedDF, Wanted
from studies import append, read

from ktpfl_pipeline.core import engine
from ktpfl_pipeline.methods.feddf import FedDF
from ktpfl_pipeline.methods.kt_pfl_joint import KTpFLJoint


def line(stage: str, rate: float, temperature: float, accuracy: str, row: str = "learned") -> dict[str, str]:
    cell = {"stage": stage, "data": "cifar10", "partition": "two_labels", "row": row, "seed": "0"}
    return {**cell, "rate": f"{rate:g}", "temperature": f"{temperature:g}", "after_transfer": accuracy}


def test_images_of_results_are_in_no_design(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = np.arange(300, dtype=np.uint16).view(np.uint8).reshape(300, 1, 2)
    for name, number in (("fashion_mnist", 100), ("fashion_mnist_full", 300), ("mnist", 50)):
        np.savez(tmp_path / f"{name}.npz", images=images[:number], labels=np.arange(number))
    monkeypatch.setattr(study, "RAW", tmp_path)
    monkeypatch.setattr(study.Study, "folder", tmp_path / "images")
    found = {}
    for design in (True, False):
        sources = [study.images(design, name) for name in ("fashion_mnist", study.PUBLIC["fashion_mnist"])]
        found[design] = [np.load(source.removeprefix("npz:"))["labels"].tolist() for source in sources]
    assert found == {True: [[*range(28)], [*range(14)]], False: [[*range(100, 300)], [*range(14, 50)]]}


def test_every_row_has_the_same_design_and_the_same_seeds() -> None:
    wanted = list(dict.fromkeys(study.everything(CELLS, list(ROWS), list(SEEDS))))
    assert sorted(name for group in GROUPS for name in group) == sorted(ROWS)
    for cell in CELLS:
        for row, own in ROWS.items():
            here = [each for each in wanted if each[1:4] == (*cell, row)]
            assert [each.seed for each in here if not each.design] == list(SEEDS)
            assert sum(each.design for each in here) == (len(RATES) + 1 if own.tuned else 0)


def test_the_design_decides_the_rate_and_then_the_temperature() -> None:
    result, hot = (Wanted(stage, "cifar10", "two_labels", "learned", 100) for stage in ("result", "temperature"))
    lines = [
        line("rate", rate, 1, accuracy) for rate, accuracy in zip(RATES, ("60.5", "61.5", "61", "60", ""), strict=True)
    ]
    assert study.point(lines[:4], hot) is None
    assert study.point(lines, hot) == (RATES[1], 10.0)
    assert study.point(lines, result) is None
    assert study.point([*lines, line("temperature", RATES[1], 10, "61.4")], result) == (RATES[1], 1.0)
    assert study.point([*lines, line("temperature", RATES[1], 10, "61.6")], result) == (RATES[1], 10.0)
    assert study.point([*lines, line("temperature", RATES[1], 10, "99", "frozen")], result) is None
    assert study.point([], result._replace(row="local")) == study.UNTUNED


def test_a_result_is_repeated_if_its_design_changes() -> None:
    lines = [line("rate", rate, 1, "61") for rate in RATES] + [line("temperature", RATES[0], 10, "60")]
    result = line("result", RATES[0], 1, "62")
    wanted = Wanted("result", "cifar10", "two_labels", "learned", 0)
    assert study.done([result]) == {wanted}, "not known to be another one"
    assert wanted in study.done([*lines, result])
    assert wanted not in study.done([*lines, line("rate", RATES[1], 1, "63"), result])


def test_finished_runs_are_known_again(tmp_path: Path) -> None:
    own = replace(study.STUDY, kept=tmp_path / "kept.csv")
    wanted = [
        Wanted("rate", "cifar10", "two_labels", "learned", 0, 0.003),
        Wanted("temperature", "cifar10", "two_labels", "learned", 0),
        Wanted("result", "cifar10", "two_labels", "learned", 100),
    ]
    for each in wanted:
        row = {name: str(value) for name, value in each._asdict().items()}
        append(own.kept, own.columns, [{**row, "temperature": "1"}])
    assert [study.identity(each) for each in read(own.kept)] == wanted
    assert own.missing([*wanted, wanted[2]._replace(seed=101)]) == [wanted[2]._replace(seed=101)]


def test_feddf_with_a_running_mean() -> None:
    """Clients train as in FedDF; a client uses the mean of its trained models, whose newest has the weight 1 / 1.75."""
    fed, method, joint = toy.federation(architectures=("linear",), dtype="float64"), RunningFedDF(), KTpFLJoint()
    plain, (state, first) = FedDF().init(fed), method.round(method.init(fed), list(toy.IDS), 1, fed)
    plain, same = FedDF().round(plain, list(toy.IDS), 1, fed)
    assert toy.same(first.after_local, same.after_local)
    assert toy.same(dict(method.personal(state, toy.IDS, fed)), first.after_local)
    starts = FedDF().personal(plain, toy.IDS, fed)
    after, second = method.round(state, list(toy.IDS), 2, fed)
    for n in toy.IDS:
        for name, used in method.personal(after, [n], fed)[n].items():
            start, trained, before = starts[n][name], second.after_local[n][name], first.after_local[n][name]
            newest = trained + joint.start_share * (start - trained)
            assert ((before + (newest - before) / 1.75) - used).abs().max() < 1e-12
    engine.run(method, toy.federation(), engine.Schedule(2, adapt_epochs=(1,)))
