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
    (line,) = choices.table([{"data": "Digits", "partition": "two classes", **row}]).splitlines()[2:]
    cells = ["Digits, two classes", "KT-pFL", "0.0", "+6.7", "33", "0", row["keeping"], "100"]
    cells[-2] = f"{100 * float(row['keeping']):.0f}"
    assert [cell.strip() for cell in line.strip("|").split("|")] == cells


def test_the_page_shows_the_kept_rows() -> None:
    text = choices.PAGE.read_text("utf-8")
    assert replaced(text, choices.tables()) == text


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
