"""A report is replaced whole or not at all; a folder is there when it is asked for."""

import base64
import hashlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from click import ClickException
from finished_runs import make_result
from full_disk import full_disk
from kedro.io import DatasetError
from matplotlib.figure import Figure
from PIL import Image

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.machine.files import sums
from ktpfl_pipeline.data.federated import FederatedData, PublicSet
from ktpfl_pipeline.data.partition import ClientIndices
from ktpfl_pipeline.hooks import ProjectHooks
from ktpfl_pipeline.pipelines.datasets import (
    ComparisonsDataset,
    CSVDataset,
    FederationDataset,
    FolderDataset,
    JSONDataset,
    ReportDataset,
    ResultDataset,
    WholeTextDataset,
)
from ktpfl_pipeline.reports.model import Picture
from ktpfl_pipeline.reports.report import Report

FILES = {
    "report.html",
    "report.md",
    "runs.csv",
    "table.txt",
    "figures/accuracy.svg",
    "figures/preview.png",
    "SHA256SUMS",
}


class Written:
    """A report of some text, with all that is written of it."""

    folder = failed = ""
    pictures = Report.pictures
    preview = property(Report.preview.func)
    write = Report.write

    def __init__(self, text: str, figures: dict[str, Any] | None = None, **changes: Any) -> None:
        drawn = {"accuracy": Figure(figsize=(1, 1))} if figures is None else figures
        self.blocks = [Picture(name, figure, f"{name}.") for name, figure in drawn.items()]
        self.files = {"report.html": f"<p>{text} ± Δ</p>", "report.md": f"# {text} ±", "runs.csv": f"{text}\n"}
        self.files["table.txt"] = f"{text} ─ ±"
        self.console = f"{text} ── ±"  # in a wider terminal
        vars(self).update(changes)

    def latex(self, columns: Any = ()) -> dict[str, str]:
        return {}


def report(text: str = "new", **changes: Any) -> Any:
    return Written(text, **changes)


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def refusal(call: Callable[..., Any], *arguments: Any) -> str:
    """Return what a user is told of a dataset's error."""
    with pytest.raises(DatasetError) as refused:
        call(*arguments)
    with pytest.raises(ClickException) as told:
        ProjectHooks().on_pipeline_error(refused.value)
    return told.value.message


TABLE = pd.DataFrame({"seed": [0, 0, 1], "client": [0, 1, 0], "index": [7, 8, 9]})
OWNERS = {0: {0: ClientIndices(*torch.arange(9).split(3))}, 1: {0: ClientIndices(*torch.arange(1, 10).split(3))}}
IMAGES = torch.arange(10 * 28 * 28).reshape(10, 1, 28, 28).to(torch.uint8)
FEDERATION = FederatedData(
    LabeledDataset(IMAGES, torch.arange(10)),
    PublicSet(IMAGES, {0: torch.tensor([9]), 1: torch.tensor([0])}),  # an open part: of the same images
    OWNERS,
    {"seeds": [0, 1], "public": {"source": "open_part"}},
)
KINDS: dict[str, tuple[Any, Any]] = {
    "result.json": (ResultDataset, make_result("local", 0.5, 0.75)),
    "cells.json": (JSONDataset, {"cells": [{"value": 0.5}]}),
    "partition.csv": (CSVDataset, TABLE),
    "tuned.json": (WholeTextDataset, '{"rho": 2.0}\n'),
    "federation.pt": (FederationDataset, FEDERATION),
}


@pytest.fixture(params=KINDS)
def single(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A dataset of one file, which another process saved."""
    file = tmp_path / "model_output" / request.param
    kind, content = KINDS[request.param]
    dataset = kind(filepath=str(file))
    assert not dataset.exists()
    dataset.save(content)
    return kind(filepath=str(file)), file


def test_a_process_reads_the_result_that_it_wrote(tmp_path: Path) -> None:
    """Another one, such as a job with another seed, may replace the file in between."""
    first, second = (ResultDataset(filepath=str(tmp_path / "result.json")) for _ in range(2))
    ours, theirs = make_result("local", 0.5, 0.75), make_result("local", 0.25, 0.5)
    first.save(ours)
    second.save(theirs)
    assert first.load() is ours
    assert ResultDataset(filepath=str(tmp_path / "result.json")).load().to_dict() == theirs.to_dict()


def test_an_owner_that_a_spreadsheet_would_run_is_text(tmp_path: Path) -> None:
    dataset = CSVDataset(filepath=str(tmp_path / "partition.csv"))
    dataset.save(TABLE.assign(owner=["=cmd|' /C calc'!A0", "Ulm", "-1"]))
    assert dataset.load()["owner"].tolist() == ["'=cmd|' /C calc'!A0", "Ulm", "'-1"]
    assert dataset.load()["index"].tolist() == [7, 8, 9]


class TestFederation:
    """The data of all seeds cross from box to box as they are."""

    def test_read_as_it_was_written(self, tmp_path: Path) -> None:
        file = tmp_path / "federation.pt"
        FederationDataset(filepath=str(file)).save(FEDERATION)
        read = FederationDataset(filepath=str(file)).load()
        assert (read.settings, list(read.seeds)) == (FEDERATION.settings, [0, 1])
        for seed, own in FEDERATION.seeds.items():
            assert read.seeds[seed].fingerprint == own.fingerprint
            assert torch.equal(read.seeds[seed].clients[0].test.inputs, own.clients[0].test.inputs)
        assert file.stat().st_size < 2 * IMAGES.numel(), "an open part's images are stored once"

    def test_no_code_in_it_runs(self, tmp_path: Path) -> None:
        file = tmp_path / "federation.pt"
        torch.save(FEDERATION, file)
        file.with_name("federation.pt.sha256").write_text(sums(tmp_path, [file]))
        with pytest.raises(DatasetError, match="--namespaces=data"):
            FederationDataset(filepath=str(file)).load()

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DatasetError, match=r"federation\.pt is not there: .*--namespaces=data"):
            FederationDataset(filepath=str(tmp_path / "federation.pt")).load()


class TestWhole:
    """`--only-missing-outputs` takes for done what exists: only what is as it was written does."""

    def test_a_whole_file_exists(self, single: tuple[Any, Path]) -> None:
        dataset, file = single
        assert dataset.exists()
        assert files(file.parent) == {file.name, f"{file.name}.sha256"}
        dataset.load()

    def test_its_sum_is_what_sha256sum_writes(self, single: tuple[Any, Path]) -> None:
        _, file = single
        expected = f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        assert file.with_name(f"{file.name}.sha256").read_text() == expected

    def test_cut_or_changed_anywhere_it_does_not(self, single: tuple[Any, Path]) -> None:
        dataset, file = single
        whole = file.read_bytes()
        step = max(1, len(whole) // 50)
        for at in range(0, len(whole), step):
            for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
                file.write_bytes(damaged)
                assert not dataset.exists()
        file.write_bytes(whole)
        assert dataset.exists()

    def test_without_the_file_or_a_whole_sum_it_does_not(self, single: tuple[Any, Path]) -> None:
        dataset, file = single
        sum_of = file.with_name(f"{file.name}.sha256")
        for content in (b"", b"\xff\xfe", sum_of.read_bytes()[:-1]):
            sum_of.write_bytes(content)
            assert not dataset.exists()
        sum_of.unlink()
        assert not dataset.exists()
        file.unlink()
        assert not dataset.exists()

    @pytest.mark.parametrize("name", [name for name in KINDS if name != "tuned.json"])
    def test_a_failure_leaves_the_old_file(self, tmp_path: Path, name: str) -> None:
        kind, content = KINDS[name]
        dataset = kind(filepath=str(tmp_path / name))
        dataset.save(content)
        before = (tmp_path / name).read_bytes()
        with pytest.raises(DatasetError):
            dataset.save(object())
        assert (tmp_path / name).read_bytes() == before
        assert dataset.exists()
        dataset.save(content)
        assert files(tmp_path) == {name, f"{name}.sha256"}

    def test_a_kill_while_it_is_written_leaves_the_old_file(
        self, single: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset, file = single
        before = file.read_bytes()

        def killed(self: Path, target: Path) -> Path:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Path, "replace", killed)
            dataset.save(KINDS[file.name][1])
        assert file.read_bytes() == before
        assert dataset.exists()

    def test_on_a_full_disk_a_sentence_and_the_old_file(self, single: tuple[Any, Path]) -> None:
        dataset, file = single
        before = file.read_bytes()
        for room in (0, 1, len(before) - 1):
            with full_disk(room):
                message = refusal(dataset.save, KINDS[file.name][1])
            assert message.startswith(f"{file} could not be written (File too large): free some")
            assert file.read_bytes() == before
            assert files(file.parent) == {file.name, f"{file.name}.sha256"}
            assert dataset.exists()

    def test_one_that_was_changed_is_not_read(self, single: tuple[Any, Path]) -> None:
        """A digit more or less in an index is another partition, and reads as well."""
        dataset, file = single
        vars(dataset).pop("_saved", None)  # as in another process
        whole = file.read_bytes()
        digits = [at for at, sign in enumerate(whole) if chr(sign) in "0123456789"]
        for at in digits[:: max(1, len(digits) // 20)]:
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert "cannot be read (its checksum is not the one next to it" in refusal(dataset.load)
        file.write_bytes(whole)
        dataset.load()

    def test_without_a_sum_it_is_read(self, single: tuple[Any, Path]) -> None:
        dataset, file = single
        whole = dataset.load()
        file.with_name(f"{file.name}.sha256").unlink()
        vars(dataset).pop("_saved", None)
        assert type(dataset.load()) is type(whole)

    @pytest.mark.parametrize("name", ["result.json", "cells.json", "partition.csv"])
    def test_a_damaged_file_is_refused_in_a_sentence(self, tmp_path: Path, name: str) -> None:
        dataset = KINDS[name][0](filepath=str(tmp_path / name))
        dataset.save(KINDS[name][1])
        vars(dataset).pop("_saved", None)  # as in another process
        (tmp_path / name).write_bytes(b'{"runs": [\xff' if name.endswith("json") else b"")
        message = refusal(KINDS[name][0](filepath=str(tmp_path / name)).load)
        assert re.match(rf"{tmp_path / name} cannot be read \(.*\): delete it and give the", message)

    def test_a_result_is_read_as_it_was_saved(self, tmp_path: Path) -> None:
        kind, result = KINDS["result.json"]
        dataset = kind(filepath=str(tmp_path / "result.json"))
        dataset.save(result)
        assert kind(filepath=str(tmp_path / "result.json")).load() == result

    @pytest.mark.parametrize("content", ["[]", "{}", '{"runs": 5}', '{"runs": [{}], "final": {}}'])
    def test_what_is_no_result_is_refused_in_a_sentence(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "result.json").write_text(content)
        message = refusal(ResultDataset(filepath=str(tmp_path / "result.json")).load)
        assert "cannot be read (it does not read as the result of a method: " in message

    def test_a_damaged_text_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "tuned.json").write_bytes(b"\xff")
        assert refusal(WholeTextDataset(filepath=str(tmp_path / "tuned.json")).load)

    def test_a_damaged_comparison_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        for content in (b"{", b"\xff", b"[" * 10**5):
            (tmp_path / "comparison.json").write_bytes(content)
            assert refusal(ComparisonsDataset(filepath=str(tmp_path)).load)


@pytest.fixture
def dataset(tmp_path: Path) -> ReportDataset:
    return ReportDataset(filepath=str(tmp_path / "reports" / "digits"))


class BrokenFigure:
    def savefig(self, *arguments: Any, **options: Any) -> None:
        raise OSError("No space left on device")


class TestReport:
    def test_everything_is_written(self, dataset: ReportDataset) -> None:
        assert not dataset.exists()
        dataset.save(report())
        assert dataset.exists()
        assert files(dataset.place) == FILES
        assert "<svg" in (dataset.place / "figures" / "accuracy.svg").read_text()

    def test_read_as_it_was_written(self, dataset: ReportDataset) -> None:
        dataset.save(report())
        assert dataset.load() == "# new ±"
        assert dataset.console() == "new ── ±"
        assert ReportDataset(filepath=str(dataset.place)).console() == "new ─ ±", "of another process"
        assert dataset.page == dataset.place / "report.html"

    def test_figures_are_written_in_the_kinds_that_the_catalog_names(self, tmp_path: Path) -> None:
        dataset = ReportDataset(filepath=str(tmp_path / "report"), figures=["png", "pdf"])
        dataset.save(report())
        assert files(dataset.place) == FILES | {"figures/accuracy.png", "figures/accuracy.pdf"}
        figures = dataset.place / "figures"
        assert (figures / "accuracy.png").read_bytes().startswith(b"\x89PNG")
        assert (figures / "accuracy.pdf").read_bytes().startswith(b"%PDF")

    def test_an_unknown_kind_of_figure_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="'jpeg' is unknown; choose from png, pdf"):
            ReportDataset(filepath=str(tmp_path / "report"), figures=["jpeg"])

    def test_its_first_figure_is_its_preview(self, dataset: ReportDataset) -> None:
        """As kedro-viz wants images: PNG in base64, of the shape to which kedro-viz stretches them."""
        dataset.save(report(figures={"accuracy": Figure(figsize=(4, 1)), "other": Figure(figsize=(1, 1))}))
        image = Image.open(io.BytesIO(base64.b64decode(dataset.preview())))
        assert image.width / image.height == pytest.approx(386 / 300, rel=0.01)
        assert image.width == 800  # of the first figure, 200 dots per inch

    def test_the_old_report_goes_whole(self, dataset: ReportDataset) -> None:
        """A figure of the last report would look like one of this."""
        dataset.save(report("old", figures={"accuracy": Figure(), "coefficients_kt_pfl": Figure()}))
        dataset.save(report("new"))
        assert files(dataset.place) == FILES
        assert dataset.load() == "# new ±"

    @pytest.mark.parametrize("broken", [{"figures": {"accuracy": BrokenFigure()}}, {"files": {"report.md": None}}])
    def test_a_failure_leaves_the_old_report(self, dataset: ReportDataset, broken: dict[str, Any]) -> None:
        dataset.save(report("old"))
        with pytest.raises(DatasetError):
            dataset.save(report("new", **broken))
        assert files(dataset.place) == FILES
        assert dataset.load() == "# old ±"
        dataset.save(report("newer"))
        assert dataset.load() == "# newer ±"
        assert [folder.name for folder in dataset.place.parent.iterdir()] == ["digits"], "nothing half-written stays"

    def test_on_a_full_disk_a_sentence_and_the_old_report(self, dataset: ReportDataset) -> None:
        dataset.save(report("old"))
        for room in (0, 20, 500):
            with full_disk(room):
                message = refusal(dataset.save, report("new"))
            assert message.startswith(f"{dataset.place} could not be written (File too large): ")
            assert dataset.exists()
            assert dataset.load() == "# old ±"
            assert [folder.name for folder in dataset.place.parent.iterdir()] == ["digits"]

    def test_a_first_report_that_fails_does_not_exist(self, dataset: ReportDataset) -> None:
        with pytest.raises(DatasetError):
            dataset.save(report(figures={"accuracy": BrokenFigure()}))
        assert not dataset.exists()

    @pytest.mark.parametrize("name", sorted(FILES))
    def test_with_a_file_cut_short_it_does_not_exist(self, dataset: ReportDataset, name: str) -> None:
        dataset.save(report())
        file = dataset.place / name
        whole = file.read_bytes()
        for length in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:length])
            assert not dataset.exists()
        file.unlink()
        assert not dataset.exists()
        file.write_bytes(whole)
        assert dataset.exists()

    def test_the_page_of_another_report_is_left_alone(self, dataset: ReportDataset) -> None:
        other = ReportDataset(filepath=str(dataset.place.with_name("digits_2")))
        other.save(report("other"))
        dataset.save(report())
        assert other.load() == "# other ±"


class TestVariants:
    def test_side_by_side(self, dataset: ReportDataset) -> None:
        for folder in ("two_labels-mnist", "dirichlet-0.3-mnist"):
            dataset.save(report(folder, folder=folder))
            assert dataset.page == dataset.place / folder / "report.html", "the last one is what is read"
            assert dataset.load() == f"# {folder} ±"
            assert dataset.console() == f"{folder} ── ±"
        assert files(dataset.place) == {
            f"{folder}/{file}" for folder in ("two_labels-mnist", "dirichlet-0.3-mnist") for file in FILES
        }

    def test_a_variant_is_replaced_whole_and_the_others_stay(self, dataset: ReportDataset) -> None:
        dataset.save(report("other", folder="other"))
        dataset.save(report("old", folder="mine", figures={"gone": Figure()}))
        dataset.save(report("new", folder="mine"))
        assert files(dataset.place / "mine") == FILES
        assert (dataset.place / "other" / "report.md").read_text() == "# other ±"
        assert sorted(folder.name for folder in dataset.place.iterdir()) == ["mine", "other"]

    def test_a_failure_leaves_the_old_variant(self, dataset: ReportDataset) -> None:
        dataset.save(report("old", folder="mine"))
        with pytest.raises(DatasetError):
            dataset.save(report("new", folder="mine", figures={"accuracy": BrokenFigure()}))
        assert dataset.load() == "# old ±"
        assert dataset.page == dataset.place / "mine" / "report.html", "not the half-written one"

    def test_a_failure_at_the_very_end_leaves_the_old_variant(
        self, dataset: ReportDataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset.save(report("old", folder="mine"))
        replace = Path.replace

        def fail(self: Path, target: Path) -> Path:
            if target.name == "mine":
                raise OSError("disk gone")
            return replace(self, target)

        with monkeypatch.context() as patched, pytest.raises(DatasetError):
            patched.setattr(Path, "replace", fail)
            dataset.save(report("new", folder="mine"))
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
