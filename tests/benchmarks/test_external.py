"""Published numbers next to ours."""

from pathlib import Path

import external
import numpy as np
import pytest
from studies import replaced


def test_the_page_shows_the_kept_runs() -> None:
    text = external.PAGE.read_text("utf-8")
    assert replaced(text, external.tables()) == text


def test_every_published_cell_has_a_section_of_conf() -> None:
    sections = (external.ROOT / "conf" / "external" / "parameters_external.yml").read_text("utf-8")
    assert all(f"\n{name}:" in sections for name in external.cells_by_setting())


def test_every_source_has_a_section_of_the_page() -> None:
    """So that the table can be written after any setting was run."""
    page = external.PAGE.read_text("utf-8")
    sources = {external.project(cells[0]) for cells in external.cells_by_setting().values()}
    assert all(f"\n## {source}\n" in page for source in sources)


def test_rules_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "KEPT", tmp_path)
    rows = ["fedavg,0,0,4,10 30 20 20 20 20", "fedavg,0,1,4,30 50 20 40 40 40", "fedavg,1,0,4,0 0 0 0 0 80"]
    (tmp_path / "here.csv").write_text("\n".join(["method,seed,client,test_samples,accuracies", *rows]), "utf-8")
    kept = external.Kept("here")
    assert kept.by_seed("fedavg", "last") == {0: 30, 1: 80}
    assert kept.by_seed("fedavg", "best") == {0: 40, 1: 80}
    assert kept.by_seed("fedavg", "ours") == {0: pytest.approx(30), 1: 16}
    assert kept.by_seed("fedavg", "last", "1") == {0: 40}


def test_a_mean_over_samples_weights_clients_by_their_test_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "KEPT", tmp_path)
    rows = ["fedavg,0,0,30,10 50", "fedavg,0,1,10,50 10"]
    (tmp_path / "here.csv").write_text("\n".join(["method,seed,client,test_samples,accuracies", *rows]), "utf-8")
    kept = external.Kept("here")
    assert kept.by_seed("fedavg", "last") == {0: 30}
    assert kept.by_seed("fedavg", "last", mean="samples") == {0: 40}


def test_images_are_copied_without_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "RAW", tmp_path)
    np.savez(tmp_path / "given.npz", images=np.ones((2, 4, 4), np.uint8), labels=np.arange(2), clients=np.zeros(2))
    external.images("given.npz")(tmp_path / "made.npz")
    assert sorted(np.load(tmp_path / "made.npz")) == ["images", "labels"]


@pytest.mark.parametrize(("sd", "ours", "equal"), [("", 71.0, True), ("", 71.1, False), ("1.6", 73.2, True)])
def test_equal_is_within_a_point_or_two_standard_deviations(sd: str, ours: float, equal: bool) -> None:
    assert external.within({"published": "70.0", "sd": sd}, ours) is equal


def test_patients_are_standardized_by_hospital(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["hospital,age,chest_pain,resting_ecg,disease,split"]
    lines += [f"a,{age},1.0,0.0,0,{split}" for age, split in ((40, "train"), (60, "train"), (50, "test"))]
    lines += [f"b,{age},4.0,2.0,1,train" for age in (10, 30)]
    (tmp_path / "heart_disease.csv").write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr(external, "RAW", tmp_path)
    external.heart(tmp_path / "heart.npz")
    made = np.load(tmp_path / "heart.npz")
    assert made["clients"].tolist() == [0, 0, 0, 1, 1]
    assert made["test"].tolist() == [False, False, True, False, False]
    assert np.allclose(made["features"][:, 0], np.array([-1, 1, 0, -1, 1]) / np.sqrt([2, 2, 1, 2, 2]))


def below_the_head(table: str) -> list[list[str]]:
    return [[each.strip() for each in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_gains_and_counts_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "KEPT", tmp_path)
    published = ["setting,method,client,published,sd,rule,mean,source"]
    published += ["here,fedavg,,70,,best,clients,Paper", 'here,fedavg,,71,,best,clients,"Library, README"']
    published += ["here,local,,50,,best,clients,Paper", "later,fedavg,,70,,best,clients,Paper"]
    (tmp_path / "published.csv").write_text("\n".join(published), "utf-8")
    rows = ["method,seed,client,test_samples,accuracies"]
    rows += [f"fedavg,{seed},0,4,{value}" for seed, value in enumerate((69, 70, 71))]
    rows += [f"local,{seed},0,4,{value}" for seed, value in enumerate((60, 62, 64))]
    rows += [f"local_matched,{seed},0,4,66" for seed in range(3)]
    (tmp_path / "here.csv").write_text("\n".join(rows), "utf-8")
    assert external.gains("Paper")["here", "fedavg"].mean == pytest.approx(0.08)
    setting, *rows = below_the_head(external.comparison("Paper"))
    assert setting == ["here", *[""] * 6]
    names, published, _, equal, _, gain, _ = zip(*rows, strict=True)
    assert names == ("FedAvg (Paper)", "FedAvg (Library)", "Local-only", "Local-only (matched work)")
    assert published == ("70.0", "71.0", "50.0", "–")
    assert equal == ("yes", "yes", "no", "–")
    assert gain == ("+8.0", "+9.0", "–", "–")
    assert below_the_head(external.counts()) == [
        ["Paper", *"3211110"],
        ["Library", *"1111110"],
        ["all", *"4322220"],
    ]


def test_clients_of_pfedme_have_two_classes_and_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "RAW", tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (70000, 2, 2), dtype=np.uint8)
    np.savez(tmp_path / "mnist_20_clients.npz", images=images, labels=np.arange(70000) % 10)
    external.pfedme_clients(tmp_path / "made.npz")
    made = np.load(tmp_path / "made.npz")
    sizes = np.bincount(made["clients"])
    assert len(sizes) == 20
    assert sizes[:5].sum() > 0.6 * sizes.sum()
    assert all(set(made["labels"][made["clients"] == n]) <= {n % 10, (n + 1) % 10} for n in range(20))
    assert abs(made["features"].mean()) < 0.02
    assert abs(made["features"].std() - 1) < 0.02


def test_parts_are_drawn_from_what_is_left() -> None:
    sizes = external.shrinking(np.random.RandomState(1), 6903, 20)
    assert (len(sizes), sum(sizes), sizes[0]) == (20, 6903, 1389)
