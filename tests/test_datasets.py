"""A report is replaced whole or not at all; a folder is there when it is asked for."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kedro.io import DatasetError
from matplotlib.figure import Figure

from ktpfl_pipeline.datasets import FolderDataset, ReportDataset

FILES = {"report.html", "report.md", "runs.csv", "table.txt", "figures/accuracy.png", "figures/accuracy.svg"}


def report(text: str = "new", **changes: Any) -> Any:
    figures = {"accuracy": Figure(figsize=(1, 1))}
    files = {"report.html": f"<p>{text} ± Δ</p>", "report.md": f"# {text} ±", "runs.csv": f"{text}\n"}
    values = {"files": files, "console": f"{text} ─ ±", "figures": figures, "variant": ""}
    return SimpleNamespace(**{**values, **changes})


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


class BrokenFigure:
    def savefig(self, *arguments: Any, **options: Any) -> None:
        raise OSError("No space left on device")


class TestReport:
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> ReportDataset:
        return ReportDataset(filepath=str(tmp_path / "reports" / "digits"))

    def test_everything_is_written(self, dataset: ReportDataset) -> None:
        assert not dataset.exists()
        dataset.save(report())
        assert dataset.exists()
        assert files(dataset.folder) == FILES
        assert (dataset.folder / "figures" / "accuracy.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (dataset.folder / "figures" / "accuracy.svg").read_text()

    def test_read_as_it_was_written(self, dataset: ReportDataset) -> None:
        dataset.save(report())
        assert dataset.load() == "# new ±"
        assert dataset.console() == "new ─ ±"
        assert str(dataset.preview()) == "<p>new ± Δ</p>"
        assert dataset.page == dataset.folder / "report.html"

    def test_the_old_report_goes_whole(self, dataset: ReportDataset) -> None:
        """A figure of the last report would look like one of this."""
        dataset.save(report("old", figures={"accuracy": Figure(), "coefficients_kt_pfl": Figure()}))
        dataset.save(report("new"))
        assert files(dataset.folder) == FILES
        assert dataset.load() == "# new ±"

    @pytest.mark.parametrize("broken", [{"figures": {"accuracy": BrokenFigure()}}, {"console": None}])
    def test_a_failure_leaves_the_old_report(self, dataset: ReportDataset, broken: dict[str, Any]) -> None:
        dataset.save(report("old"))
        with pytest.raises(DatasetError):
            dataset.save(report("new", **broken))
        assert files(dataset.folder) == FILES
        assert dataset.load() == "# old ±"
        dataset.save(report("newer"))
        assert dataset.load() == "# newer ±"
        assert [folder.name for folder in dataset.folder.parent.iterdir()] == ["digits"], "nothing half-written stays"

    def test_a_first_report_that_fails_does_not_exist(self, dataset: ReportDataset) -> None:
        with pytest.raises(DatasetError):
            dataset.save(report(figures={"accuracy": BrokenFigure()}))
        assert not dataset.exists()

    def test_the_page_of_another_report_is_left_alone(self, dataset: ReportDataset) -> None:
        other = ReportDataset(filepath=str(dataset.folder.with_name("digits_2")))
        other.save(report("other"))
        dataset.save(report())
        assert other.load() == "# other ±"


class TestVariants:
    @pytest.fixture
    def dataset(self, tmp_path: Path) -> ReportDataset:
        return ReportDataset(filepath=str(tmp_path / "reports" / "digits"))

    def test_side_by_side(self, dataset: ReportDataset) -> None:
        for variant in ("two_labels-mnist", "dirichlet-0.3-mnist"):
            dataset.save(report(variant, variant=variant))
            assert dataset.page == dataset.folder / variant / "report.html", "the last one is what is read"
            assert dataset.load() == f"# {variant} ±"
            assert dataset.console() == f"{variant} ─ ±"
        assert files(dataset.folder) == {
            f"{variant}/{file}" for variant in ("two_labels-mnist", "dirichlet-0.3-mnist") for file in FILES
        }

    def test_a_variant_is_replaced_whole_and_the_others_stay(self, dataset: ReportDataset) -> None:
        dataset.save(report("other", variant="other"))
        dataset.save(report("old", variant="mine", figures={"gone": Figure()}))
        dataset.save(report("new", variant="mine"))
        assert files(dataset.folder / "mine") == FILES
        assert (dataset.folder / "other" / "report.md").read_text() == "# other ±"
        assert sorted(folder.name for folder in dataset.folder.iterdir()) == ["mine", "other"]

    def test_a_failure_leaves_the_old_variant(self, dataset: ReportDataset) -> None:
        dataset.save(report("old", variant="mine"))
        with pytest.raises(DatasetError):
            dataset.save(report("new", variant="mine", figures={"accuracy": BrokenFigure()}))
        assert dataset.load() == "# old ±"
        assert dataset.page == dataset.folder / "mine" / "report.html", "not the half-written one"

    def test_a_failure_at_the_very_end_leaves_the_old_variant(
        self, dataset: ReportDataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset.save(report("old", variant="mine"))
        replace = Path.replace

        def fail(self: Path, target: Path) -> Path:
            if target.name == "mine":
                raise OSError("disk gone")
            return replace(self, target)

        with monkeypatch.context() as patched, pytest.raises(DatasetError):
            patched.setattr(Path, "replace", fail)
            dataset.save(report("new", variant="mine"))
        assert dataset.load() == "# old ±"


class TestFolder:
    def test_it_is_made_when_it_is_asked_for(self, tmp_path: Path) -> None:
        folder = tmp_path / "data" / "01_raw"
        dataset = FolderDataset(filepath=str(folder))
        assert not folder.exists()
        assert dataset.load() == folder
        assert folder.is_dir()

    def test_what_is_in_it_stays(self, tmp_path: Path) -> None:
        (tmp_path / "my.npz").write_text("mine")
        assert (FolderDataset(filepath=str(tmp_path)).load() / "my.npz").read_text() == "mine"

    def test_it_cannot_be_saved(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match="is an input"):
            FolderDataset(filepath=str(tmp_path)).save(5)
