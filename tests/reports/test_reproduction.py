"""The paper's tables beside its numbers, from results small enough to work by hand."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cases import case
from report_prose import Prose, words_of

from ktpfl_pipeline.analysis.evidence import Evidence
from ktpfl_pipeline.analysis.provenance import Provenance
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.analysis.study import Cell, seconds_left
from ktpfl_pipeline.reports import reproduction

HERE = Provenance("2026-11-22", "make paper", "abc", "", "two cores", "torch")
Made = Callable[..., Cell]


@pytest.fixture
def cell(run: Callable[..., FinishedRun], paper_settings: dict[str, Any]) -> Made:
    """A cell of Table 1 in which the two clients of each seed have one accuracy, if it is finished."""

    def made(method: str, *accuracies: float, part: str = "table1", label: str = "two labels", **more: Any) -> Cell:
        seeds = [0, 1, 2]
        keys = {seed: f"key-{method}-{seed}" for seed in seeds}
        runs = [run(method, seed, [(each, each)]) for seed, each in zip(seeds, accuracies, strict=False)]
        return Cell(part, "hetero_fashion_mnist", label, method, paper_settings, {}, seeds, keys, runs, **more)

    return made


def entries(table: Any) -> list[dict[str, str]]:
    return [{column.key: str(row.get(column.key)) for column in table.columns} for row in table.rows]


class TestBesideThePaper:
    """KT-pFL has 75.6 % there, FedMD 66.1 %."""

    def test_the_interval_over_seeds_decides(self, cell: Made) -> None:
        for accuracies, said in (
            ((0.74, 0.76, 0.77), "agrees"),
            ((0.95, 0.96, 0.97), "differs: 20.4 points above"),
            ((0.50, 0.51, 0.52), "differs: 24.6 points below"),
            ((0.75, 0.76), "None"),  # not finished, so empty
        ):
            with case(accuracies):
                (row,) = entries(reproduction.beside_the_paper([cell("kt_pfl", *accuracies)]))
                assert row["agrees"] == said
                assert row["paper"] == "75.60"

    def test_one_seed_decides_nothing(self, cell: Made) -> None:
        one = cell("kt_pfl", 0.9)
        object.__setattr__(one, "seeds", [0])
        verdict = entries(reproduction.beside_the_paper([one]))[0]["agrees"]
        assert verdict.startswith("not significant") and "1 seed" in verdict

    def test_a_method_that_the_paper_does_not_have_has_no_number(self, cell: Made) -> None:
        cells = [cell(method, 0.5, 0.6, 0.7) for method in ("sim_pfl", "local", "kt_pfl")]
        assert not reproduction.beside_the_paper(cells[1:2]).rows
        found = entries(reproduction.accuracy_table("table1", cells))
        beside = [row["Fashion-MNIST, two labels: paper"] for row in found]
        assert beside == ["72.71", "none", "75.60"]
        assert len(reproduction.accuracy_table("table1", cells[1:2]).columns) == 2

    def test_a_column_of_the_study_has_its_own_number(self, cell: Made) -> None:
        cells = [cell("kt_pfl", 0.7, 0.7, 0.7, part="table4", label=label) for label in ("ρ = 0.3", "ρ = 2")]
        (row,) = entries(reproduction.beside_the_paper(cells))
        assert (row["cell"], row["paper"]) == ("Fashion-MNIST, ρ = 0.3", "89.30")

    def test_a_variant_of_a_part_has_the_numbers_of_its_table(self, cell: Made) -> None:
        (row,) = entries(reproduction.beside_the_paper([cell("fedmd", part="table1_rate")]))
        assert (row["part"], row["paper"]) == ("Table 1 (rate)", "66.10")


def test_whether_the_order_is_the_papers(cell: Made) -> None:
    for fedmd, said in (
        ((0.5, 0.6, 0.7), "agrees"),
        ((0.8, 0.9, 0.99), "differs"),
        ((0.7, 0.9, 0.8), "not significant"),
        ((0.5,), "None"),
    ):
        with case(fedmd):
            (row,) = entries(reproduction.orders([cell("kt_pfl", 0.7, 0.81, 0.9), cell("fedmd", *fedmd)]))
            assert row["methods"] == "KT-pFL minus FedMD"
            assert row["paper"] == "+9.5"
            assert row["agrees"] == said


def test_two_readings_of_one_row_of_the_papers_have_no_order(cell: Made) -> None:
    cells = [cell(method, 0.7, 0.8, 0.9) for method in ("kt_pfl", "kt_pfl_authors", "fedmd")]
    found = [row["methods"] for row in entries(reproduction.orders(cells))]
    assert len(found) == 2
    assert all(row.endswith(" minus FedMD") for row in found)


def test_two_experiments_on_the_same_data_have_a_column_each(cell: Made) -> None:
    cells = [cell("kt_pfl", 0.7, 0.8, 0.9), replace(cell("kt_pfl", 0.4, 0.5, 0.6), experiment="homo_fashion_mnist")]
    (row,) = entries(reproduction.accuracy_table("table1", cells))
    data = "Fashion-MNIST, two labels"
    found = {name.removeprefix(data): number for name, number in row.items()}
    assert found[", hetero_fashion_mnist"] == "80.0 ± 10.0"
    assert found[", homo_fashion_mnist"] == "50.0 ± 10.0"


def test_a_point_after_adaptation_is_named_by_its_epochs(cell: Made) -> None:
    table = reproduction.accuracy_table("table1", [cell("kt_pfl")], "adapted_2")
    assert table.latex == "After 2 extra epochs"


def test_the_best_setting_of_the_study(cell: Made) -> None:
    """ρ = 0.5 is the paper's best on Fashion-MNIST; of its others the better counts, ours do not."""
    for other, said in (
        ((0.6, 0.7, 0.81), "agrees"),
        ((0.8, 0.9, 0.99), "differs"),
        ((0.7, 0.8, 0.9), "not significant"),
    ):
        with case(other):
            labels = {
                "ρ = 0.5": (0.7, 0.8, 0.9),
                "ρ = 0.1": other,
                "ρ = 0.3": (0.1, 0.1, 0.1),
                "ρ = 2": (0.99, 1.0, 1.0),
            }
            cells = [cell("kt_pfl", *values, part="table4", label=label) for label, values in labels.items()]
            (row,) = entries(reproduction.findings(cells))
            assert (row["best"], row["agrees"]) == ("ρ = 0.5", said)
            unfinished = [*cells[:2], cell("kt_pfl", part="table4", label="ρ = 0.7")]
            assert entries(reproduction.findings(unfinished))[0]["agrees"] == "None"


def test_the_plan_counts_a_shared_run_once(cell: Made) -> None:
    cells = [
        cell("kt_pfl", 0.5, seconds=3600.0, judged="other methods"),
        cell("kt_pfl", 0.5, part="figure3", seconds=3600.0),
        cell("local", 0.5, 0.6, 0.7, failed="the disk is full"),
    ]
    assert seconds_left(cells) == 7200
    assert seconds_left([*cells, cell("fedmd", 0.5)]) is None
    assert reproduction.progress(cells) == "6 runs, 4 done, 2 left, about 2.0 h; 1 cell failed."
    first, second, third = entries(reproduction.plan_table([cell] for cell in cells))
    assert (first["done"], first["left"], first["known_by"]) == ("1 of 3", "2.0 h", "other methods")
    assert second["left"] == "as above"
    assert (third["done"], third["failed"]) == ("3 of 3", "the disk is full")


def test_a_reason_that_a_whole_column_failed_for_is_told_once(cell: Made) -> None:
    failed = [cell(method, failed="no such file") for method in ("kt_pfl", "fedmd", "local")]
    report = reproduction.build(Evidence("Small.", {"table1": ("several architectures", "table")}, failed), HERE)
    assert report.markdown.count("no such file") == 1
    assert "| KT-pFL, FedMD, Local-only |" in report.markdown


def test_only_a_long_reason_is_broken_into_lines(cell: Made) -> None:
    reasons = ["no such file", "client 15's test loss is not finite after round 6; set a lower learning rate"]
    shown = [
        reproduction.build(Evidence("Small.", {"table1": ("", "table")}, [cell("kt_pfl", failed=why)]), HERE).html
        for why in reasons
    ]
    found = [bool(re.search(r'<td class="prose"[^>]*>(no such|client 15)', html)) for html in shown]
    assert found == [False, True]


def test_a_failed_cell_is_told_from_an_empty_one(cell: Made) -> None:
    rows = entries(reproduction.accuracy_table("table1", [cell("kt_pfl", failed="no such file"), cell("local")]))
    assert [row["Fashion-MNIST, two labels"] == "failed" for row in rows] == [True, False]


def test_in_a_column_only_common_clients_are_compared(cell: Made) -> None:
    """With FedMD the second of two clients diverged in the only round: all methods are of the first client."""
    kt_pfl, fedmd, other = cell("kt_pfl", 0.7, 0.7, 0.7), cell("fedmd", 0.6, 0.6, 0.6), cell("local", part="figure3")
    lacking = [replace(run, history=[replace(run.history[0], diverged=[1])]) for run in fedmd.runs]
    found, left_out = reproduction.compared([kt_pfl, replace(fedmd, runs=lacking), other])
    assert [each.result and each.result.final["after_transfer"].per_client for each in found[:2]] == [
        pytest.approx([0.7, math.nan], nan_ok=True),
        pytest.approx([0.6, math.nan], nan_ok=True),
    ]
    assert found[2] == other
    assert left_out.startswith("Fashion-MNIST, two labels: These clients count in no number")
    assert left_out.index("1 (seed 0)") < left_out.index("diverged with FedMD in round 1")


def test_the_page(prose: Prose, cell: Made) -> None:
    """One cell that agrees, one that differs, one that is empty."""
    cells = [cell("kt_pfl", 0.74, 0.76, 0.77), cell("fedmd", 0.9, 0.91, 0.92), cell("sim_pfl", 0.9)]
    parts = {"table1": ("several architectures", "table"), "figure3": ("two labels", "curves")}
    every = [*cells, cell("local", part="figure3")]
    report = reproduction.build(Evidence("Small.", parts, every, ["one machine", "a GPU"]), HERE)
    assert report.facts[-2:] == ["one machine", "a GPU"]
    assert report.facts[-3].endswith(" of training")
    assert report.summary.startswith("2 of 4 cells finished. ")
    assert report.summary.endswith("Compared with the paper's numbers, orders and best settings: 1 agrees, 2 differs.")
    prose(words_of(report))
    assert "| Sim-pFL |" in report.markdown
    assert "Nothing is finished yet." in report.html
