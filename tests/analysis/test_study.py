import json
from dataclasses import replace

import pytest
from finished_runs import under

from ktpfl_pipeline.analysis.comparison import Comparison
from ktpfl_pipeline.analysis.study import check_data, check_settings
from ktpfl_pipeline.core.errors import InputError


def test_what_a_comparison_leaves_is_read_as_results_without_runs(study, paper_settings):
    content = json.loads(json.dumps(under(paper_settings, study).to_dict("compare_x")))
    assert content["name"] == "compare_x"
    assert content["methods"]["fedmd"]["traffic"] == study[1].traffic
    assert Comparison.from_dict(content).results == [
        replace(result, runs=[], hyperparameters={}, settings=paper_settings) for result in study
    ]


def test_other_settings_are_refused():
    made = {"rounds": 1, "training": {"epochs": 5}}
    check_settings("The result was", made, dict(made))
    with pytest.raises(InputError, match=r"The result was made with other settings \(training.epochs=5, now 20\)"):
        check_settings("The result was", made, {"rounds": 1, "training": {"epochs": 20}})


def test_results_on_other_data_are_refused(study):
    seen = [
        replace(result, runs=[replace(run, data=f"images of seed {run.seed}") for run in result.runs])
        for result in study
    ]
    check_data(seen)
    fedmd = seen[1]
    seen[1] = replace(fedmd, runs=[replace(fedmd.runs[0], data="other images"), *fedmd.runs[1:]])
    with pytest.raises(InputError, match="fedmd saw other data than kt_pfl with seed 0"):
        check_data(seen)
