from dataclasses import replace

from finished_runs import make_run
from report_prose import Prose
from written import row

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.results import MethodResult, summarize
from ktpfl_pipeline.core.metrics import Newcomers
from ktpfl_pipeline.reports import newcomers
from ktpfl_pipeline.reports.model import Table, Text


def with_newcomers(method: str, *means: float) -> MethodResult:
    """Two newcomers beside two clients, one seed for each mean at no epochs; ten points more after two."""
    runs = []
    for seed, mean in enumerate(means):
        accuracy = {e: [mean + e / 20 - 0.1, mean + e / 20 + 0.1] for e in (0, 2)}
        found = Newcomers(
            [4, 5], ["mlp", "mlp"], accuracy, {0: [0.8, 0.6], 2: [0.9, 0.9]}, {"knowledge_down": 3_000_000}
        )
        runs.append(replace(make_run(method, seed), newcomers=found))
    return summarize(runs, {})


def test_a_row_a_method_with_its_gain_over_local_only_paired_by_seed() -> None:
    results = [with_newcomers("kt_pfl", 0.5, 0.6, 0.55), with_newcomers("local", 0.3, 0.6, 0.45)]
    table = newcomers.new_clients(Comparison(results))[0]
    assert isinstance(table, Table)
    assert row(table, "KT-pFL") == {
        "new_0": "55.0 ± 5.0",
        "new_0_minus_local": "+10.0 [−14.8, +34.8]",
        "existing_0": "70.0 ± 0.0",
        "new_2": "65.0 ± 5.0",
        "new_2_minus_local": "+10.0 [−14.8, +34.8]",
        "existing_2": "90.0 ± 0.0",
        "joining": "3.00",
    }
    assert row(table, "Local-only")["new_0_minus_local"] == "–"


def test_nothing_where_nobody_was_held_out_and_else_a_caption_that_counts_them(prose: Prose) -> None:
    assert newcomers.new_clients(Comparison([summarize([make_run()], {})])) == []
    table, caption = newcomers.new_clients(Comparison([with_newcomers("kt_pfl", 0.5)]))
    assert isinstance(table, Table)
    assert isinstance(caption, Text)
    assert prose(caption.text) == table.latex
    assert caption.text.startswith("2 clients held out of training, drawn by seed, joined the 2 others")


def test_are_kept_with_the_result() -> None:
    result = with_newcomers("kt_pfl", 0.5)
    assert MethodResult.from_dict(result.to_dict()).runs[0].newcomers == result.runs[0].newcomers
