"""The grid of README and of the page of results."""

import verdicts
from studies import replaced

from ktpfl_pipeline.analysis.statistics import difference, holm


def test_both_pages_show_the_kept_runs() -> None:
    grid = verdicts.grid()
    for page in verdicts.PAGES:
        text = page.read_text("utf-8")
        assert replaced(text, {verdicts.ABOVE: grid}) == text, "write it again: python benchmarks/verdicts.py"


def test_a_cell_shows_the_best_with_as_many_seeds_as_kt_pfl() -> None:
    gains = holm(
        {
            "kt_pfl": difference([0.0, 0.01, -0.01, 0.0]),
            "fedmd": difference([0.02, 0.021, 0.019, 0.02]),
            "sim_pfl": difference([0.01, 0.011, 0.009, 0.01]),
            "topk_pfl": difference([0.05, 0.051, 0.049]),
        }
    )
    assert verdicts.cell(gains, lambda name: name != "kt_pfl") == "FedMD ▲\N{NO-BREAK SPACE}+2.0"
    assert verdicts.cell(gains, lambda name: name == "kt_pfl", named=False) == "○\N{NO-BREAK SPACE}0.0"
    assert verdicts.cell(gains, lambda name: name == "ditto") == ""
    assert [verdicts.exchanged(name) for name in ("fedmd", "feddf", "local")] == ["predictions", "models", ""]
