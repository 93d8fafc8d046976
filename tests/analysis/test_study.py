import json
from dataclasses import replace

from finished_runs import under

from ktpfl_pipeline.analysis.study import compared, comparison


def test_what_a_comparison_leaves_is_read_as_results_without_runs(study, paper_settings):
    content = json.loads(json.dumps(comparison("compare_x", under(paper_settings, study))))
    assert content["name"] == "compare_x"
    assert content["methods"]["fedmd"]["traffic"] == study[1].traffic
    assert compared(content) == [
        replace(result, runs=[], hyperparameters={}, settings=paper_settings) for result in study
    ]
