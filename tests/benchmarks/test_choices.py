"""The rows on the choice of converged clients."""

import choices
from finished_runs import make_clients, under
from studies import replaced

from ktpfl_pipeline.core.settings import Choice


def test_a_row_has_gains_and_losers_before_and_after_the_choice() -> None:
    both = [make_clients("kt_pfl", (0.9, 0.6, 0.8)), make_clients("local", (0.7, 0.8, 0.8))]
    comparison = under({"evaluation": {"choice": vars(Choice())}}, both)
    (row,) = choices.rows(comparison)
    assert (row["method"], row["seeds"]) == ("kt_pfl", "0 1 2")
    assert [float(row[f"gain_{when}"]) for when in ("before", "after")] == [0.0, 0.0667]
    assert [float(row[f"losing_{when}"]) for when in ("before", "after")] == [0.3333, 0.0]
    assert (row["judged"], row["right"], row["better"]) == ("6", "6", "3")
    kept = [{"data": "Digits", "partition": "two classes", **row}]
    shares = ["33", "0", f"{100 * float(row['keeping']):.0f}", "100"]
    assert cells(choices.by_setting(kept)) == [["Digits, two classes", "KT-pFL", "0.0", "+6.7", *shares]]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_methods_have_the_mean_and_the_lowest_gain_of_their_settings() -> None:
    row = {"gain_before": "0.10", "gain_after": "0.02", "losing_before": "0.2", "losing_after": "0.0"}
    row |= {"keeping": "0.5", "judged": "10", "right": "6"}
    other = {**row, "gain_before": "-0.04", "losing_before": "0.4", "judged": "30", "right": "30"}
    kept = [{"method": "fedmd", **row}, {"method": "kt_pfl", **row, "gain_before": "0.2"}, {"method": "fedmd", **other}]
    assert cells(choices.by_method(kept)) == [
        ["KT-pFL", "+20.0", "+2.0", "+20.0", "+2.0", "20", "0", "50", "60"],
        ["FedMD", "+3.0", "+2.0", "−4.0", "+2.0", "30", "0", "50", "90"],
    ]


def test_the_pages_show_the_kept_rows() -> None:
    for page, headed in choices.tables().items():
        text = page.read_text("utf-8")
        assert replaced(text, headed) == text


def test_new_rows_replace_those_of_the_same_method_and_setting() -> None:
    kept = choices.read(choices.KEPT)
    first = {**kept[0], "gain_before": "0.5"}
    other = {**kept[0], "method": "fedavg", "gain_before": "-0.5"}
    rows = choices.merged(kept, [other, first])
    assert choices.merged(kept, []) == kept
    assert [row for row in rows if row["method"] == "fedavg"] == [other]
    assert (len(rows), rows[0], rows.index(other)) == (
        len(kept) + 1,
        first,
        sum((row["data"], row["partition"]) == (first["data"], first["partition"]) for row in kept),
    )
