"""Missing runs, kept lines, and tables in pages."""

from pathlib import Path

import numpy as np
import pytest
import studies
from studies import Rows, Runs, Study

PAGE = "# Page\n\nOne:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nTwo:\n\n| c |\n| --- |\n\n## Last\n\nText.\n"


def test_a_table_is_drawn_with_an_empty_cell() -> None:
    assert studies.drawn([["a", "b", "c"], ["x", "", ""]]) == "| a | b | c |\n| --- | --- | --- |\n| x | | |"


def test_pfeddf_fine_tunes_before_every_evaluation() -> None:
    assert studies.named("pfeddf") == "pFedDF ‡"
    assert studies.named("local_5x") == "Local-only (5 × work)"


def test_a_table_is_replaced_below_its_text(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(PAGE, "utf-8")
    studies.write(file, {"Two:": "| d |", "One:": "| e |"})
    assert file.read_text("utf-8") == "# Page\n\nOne:\n\n| e |\n\nTwo:\n\n| d |\n\n## Last\n\nText.\n"


@pytest.mark.parametrize(
    ("above", "message"),
    [
        ("## Last", "The page has no table below '## Last'"),
        ("Three:", "The page has the text 'Three:' 0 times"),
        ("| --- |", "2 times; it needs it once"),
    ],
)
def test_a_text_without_a_place_for_a_table_is_named(above: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message.replace("|", r"\|")):
        studies.replaced(PAGE, {above: "| d |"})


def study(file: Path, finished: list[int]) -> Study:
    """Return a study whose runs are numbers; 2 needs 1 first."""

    def finish(key: int, rows: Rows) -> Rows | None:
        if key == 2 and not any(row["key"] == "1" for row in rows):
            return None
        finished.append(key)
        return [{"key": str(key), "after_transfer": "50"}]

    return Study(file, ["key", "after_transfer", "seconds"], lambda rows: {int(row["key"]) for row in rows}, finish)


class TestStudy:
    @pytest.fixture
    def made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Study, list[int]]:
        monkeypatch.setattr(studies, "ROOT", tmp_path)
        finished: list[int] = []
        return study(tmp_path / "kept.csv", finished), finished

    def test_missing_runs_are_finished_once_in_any_order(self, made: tuple[Study, list[int]]) -> None:
        own, finished = made
        own.run([2, 1, 3])
        own.run([1, 2, 3, 4])
        assert finished == [1, 3, 2, 4]
        assert [row["seconds"] for row in studies.read(own.kept)] == [""] * 4

    def test_a_run_of_another_process_is_left_to_it(self, made: tuple[Study, list[int]]) -> None:
        own, finished = made
        with studies.claimed(own.folder / "1.lock") as free:
            assert free
            assert [own.perform(1), own.perform(3)] == [False, True]
        assert finished == [3]


def test_a_file_is_made_once(tmp_path: Path) -> None:
    calls: list[int] = []
    for _ in range(2):
        place = studies.made_once(tmp_path / "a.npz", lambda: calls.append(1) or {"x": np.arange(3)})  # type: ignore[func-returns-value]
    assert (len(calls), np.load(place)["x"].tolist()) == (1, [0, 1, 2])


def test_differences_are_paired_by_seed_and_corrected_together() -> None:
    noise = {seed: 0.001 * seed for seed in range(4)}
    accuracy = {"local": 0.5, "kt_pfl": 0.6, "fedmd": 0.4}
    own = Runs(
        (name, "p", seed, value + (name != "local") * by + client)
        for name, value in accuracy.items()
        for seed, by in noise.items()
        for client in (-0.1, 0.1)
    )
    found = own.minus("local", "p")
    assert {name: (round(each.mean, 6), each.family) for name, each in found.items() if each} == {
        "kt_pfl": (0.1015, 2),
        "fedmd": (-0.0985, 2),
    }
    assert [*own.minus("local", "p", ["fedmd", "fd"]).items()][1] == ("fd", None)
    assert str(own.accuracy("local", "p")) == "50.0 ± 0.0"
