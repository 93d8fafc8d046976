"""The tuning's settings and the experiment's → all trials → the chosen values, for comparisons, and a report."""

from collections.abc import Sequence
from functools import partial, update_wrapper

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.pipelines.tune.nodes import choose, report, run_trials


def create_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline that tunes the methods of one experiment.

    Args:
        name: the tuning's.
        experiment: what is tuned.
        methods: all that its comparison runs.
    """
    run = update_wrapper(partial(run_trials, name=name, methods=methods), run_trials)
    pick = update_wrapper(partial(choose, name=name), choose)
    tell = update_wrapper(partial(report, name=name), report)
    settings, trials = [f"params:{name}", f"params:{experiment}"], f"{name}/trials"
    chosen = f"{experiment}/hyperparameters"
    return Pipeline(
        [
            node(run, [*settings, "raw_folder"], trials, name="run_trials", namespace="tune"),
            node(pick, [*settings, trials], chosen, name="choose", namespace="report"),
            node(tell, [*settings, trials], f"{name}/report", name="report", namespace="report"),
        ]
    )
