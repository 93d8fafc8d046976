"""The tables of the page on learned coefficients, from runs whose numbers are known."""

import learned_page as page
import pytest
from learned_coefficients import CELLS, ROWS, SEEDS, Wanted, everything
from studies import read, replaced

NOISE = (0.15, -0.15, 0.05, -0.05, 0.0)


def lines(gain: dict[str, float]) -> list[dict[str, str]]:
    """Return runs with five seeds of every row: 60 % and the row's gain in points, with noise of the learned matrix."""
    found = []
    for each in dict.fromkeys(everything(CELLS, list(ROWS), list(SEEDS)[:5])):
        noise = NOISE[each.seed - SEEDS[0]] if each.row == page.LEARNED and not each.design else 0.0
        accuracy = f"{60 + gain.get(each.row, 0.0) + noise:.3f}"
        line = {name: str(value) for name, value in each._asdict().items()} | dict.fromkeys(page.POINTS, accuracy)
        line |= {"rate": f"{each.rate or 0.01:g}", "temperature": "10", "megabytes": "0.26", "samples": "1272"}
        found.append(line | {"own_weight": "0.25", "overlap": "0.5", "effective": "6"})
    return found


def test_differences_with_both_tests() -> None:
    """The standard error is 0.05, and of 8 tests the first has half an interval of 0.05 t(4, 1 - 0.05/16) = 0.26.

    For 0.1 and ± 0.5 t is 8, and 8 p is 0.005.
    """
    results = page.values(lines({"learned": 0.1, "frozen": -2.0}))
    table = page.compared(results, page.LEARNED, ["frozen", "random"], "adapted")
    assert table.splitlines()[2:] == [
        "| frozen at 1/N (FedMD)" + " | **+2.1 [+1.8, +2.4]**" * 4 + " |",
        "| random rows" + " | +0.1 [−0.1, +0.3] ≈" * 4 + " |",
        "| seeds | 5 | 5 | 5 | 5 |",
    ]


def test_the_pages_show_the_kept_runs() -> None:
    for file, tables in page.pages(read(page.STUDY.kept)).items():
        text = file.read_text("utf-8")
        assert replaced(text, tables) == text


def test_how_often_learning_helps() -> None:
    """0.1 above equal rows is equivalent to them; 2.1 above the frozen row and 1.9 below the oracle is significant."""
    table = page.summary(page.values(lines({"learned": 0.1, "frozen": -2.0, "overlap": 2.0})))
    found = dict(line.strip("| ").split(" | ", 1) for line in table.splitlines())
    assert found["frozen at 1/N (FedMD)"] == "8 | 0 | 0 | 0"
    assert found["overlap of labels (oracle)"] == "0 | 8 | 0 | 0"
    assert found["random rows"] == "0 | 0 | 8 | 0"


def test_what_is_not_finished_is_left_out() -> None:
    """Rows without a run are left out. Only seeds that both rows have count; two seeds have no verdict."""
    some = [line for line in lines({}) if line["row"] != "random" or int(line["seed"]) < 102]
    some = [line for line in some if line["row"] != "frozen" or line["stage"] != "result"]
    table = page.compared(page.values(some), page.LEARNED, ["frozen", "random"], "adapted")
    assert table.splitlines()[2:] == ["| random rows" + " | 0.0 (2 seeds)" * 4 + " |", "| seeds" + " | 5" * 4 + " |"]
    page.picture(page.values(some))


def test_diverged_runs_have_no_value() -> None:
    diverged = {**lines({})[-1], **dict.fromkeys(page.POINTS, "")}
    assert page.values([diverged]).keys() == {
        (*CELLS[-1], diverged["row"], name) for name in ("megabytes", "samples", "own_weight", "overlap", "effective")
    }


def test_every_table_is_made() -> None:
    given = lines({"joint": 1.0})
    assert len(dict(page.tables(given))) == 6
    assert len(dict(page.evidence(given))) == 2 + len(CELLS)
    made = dict([*page.tables(given), *page.evidence(given)])
    assert all(table.splitlines()[0].count("|") == table.splitlines()[-1].count("|") for table in made.values())
    ours = "| KT-pFL (joint) | 5 | 61.0 ± 0.0 | 61.0 ± 0.0 | 61.0 ± 0.0 |  |  |"
    assert all(ours in made[f"**Joint: {page.title(cell)}**\n"] for cell in CELLS)
    assert "| FedDF | 0.26 | 1,272 |" in page.costs(page.values(given)).splitlines()
    axes = page.picture(page.values(lines({}))).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()][:2] == [
        "Fashion-MNIST, all classes",
        "Fashion-MNIST, all classes, adapted",
    ]


def test_the_order_of_the_runs_does_not_matter() -> None:
    """Rates are those of the result, also if the runs of the design come last."""
    given = lines({})
    assert page.pages(given) == page.pages(given[::-1])


@pytest.mark.parametrize("stage", ["rate", "temperature"])
def test_the_design_is_no_result(stage: str) -> None:
    only = [line for line in lines({}) if Wanted(line["stage"], "", "", "", 0).stage == stage]
    assert page.values(only) == {}
