"""The pipelines. That of an experiment has one namespace for data, and one with a box per method and a report.

          ┌ methods ──────────────┐
          │    ┌─ kt_pfl ─┐       │
data ─────┼────┼─ fedmd  ─┼─ report
          │    └─ local  ─┘       │
          └───────────────────────┘

kedro-viz therefore opens on two boxes for any number of methods. Data that cross a box are stored, so that each box can
run in a separate process: ``kedro run --namespaces=methods.kt_pfl``.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from inspect import signature
from typing import Any

from kedro.pipeline import Pipeline, node
from kedro.pipeline.node import Node

from ktpfl_pipeline.config.checks import ALWAYS
from ktpfl_pipeline.config.studies import PAPER
from ktpfl_pipeline.config.tuned import resolve
from ktpfl_pipeline.methods import METHODS, slug
from ktpfl_pipeline.reports import overview as overviews
from ktpfl_pipeline.reports.report import Report
from ktpfl_pipeline.runs import paper, sweep, tuning
from ktpfl_pipeline.runs.comparison import evaluate, report, train
from ktpfl_pipeline.runs.preparation import partition_clients, sample_public_set
from ktpfl_pipeline.runs.samples import load_private, load_public

REPORT = "report"
TURNS = (*ALWAYS, *METHODS)


def step(
    function: Callable[..., Any],
    inputs: str | list[str],
    output: str | list[str],
    *,
    of: str = "",
    namespace: str = "",
    **given: Any,
) -> Node:
    """Return a node that calls `function` with datasets as positional and `given` as keyword arguments.

    The node wraps the function instead of using a partial, because kedro-viz shows the source of functions but not of
    partials.

    Args:
        function: the function, whose name becomes the name of the node.
        inputs: the names of the datasets that the function reads.
        output: the names of the datasets that the function returns.
        of: a suffix of the node's name, such as the method in ``train_kt_pfl``.
        namespace: the box in which kedro-viz shows the node; empty if the whole pipeline gets a namespace.
        given: keyword arguments that are fixed when the pipeline is made.
    """

    @wraps(function)
    def called(*datasets: Any) -> Any:
        return function(*datasets, **given)

    called.__signature__ = signature(partial(function, **given))  # type: ignore[attr-defined]
    name = f"{called.__name__}_{of}" if of else called.__name__
    return node(called, inputs, output, name=name, namespace=namespace or None)


def experiment_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that runs `methods` on one experiment and reports on them together.

    All pipelines of one experiment share its data and results.
    """
    settings, tuned, parameters = "params:experiment", "hyperparameters", {"params:experiment": f"params:{experiment}"}
    made = ["federation", "partition"]
    data = Pipeline(
        [
            step(load_private, [settings, "raw_folder"], "private"),
            step(load_public, [settings, "raw_folder", "private"], "public_images"),
            step(sample_public_set, [settings, "private", "public_images"], "public_set"),
            step(partition_clients, [settings, "private", "public_set", "raw_folder"], made, methods=tuple(methods)),
        ],
        namespace="data",
        inputs={"raw_folder"},
        outputs={dataset: f"{experiment}/{dataset}" for dataset in made},
        parameters=parameters,
    )
    results = {slug(method): f"{experiment}/{slug(method)}/result" for method in methods}
    boxes = [
        Pipeline(
            [
                step(resolve, [settings, tuned], "resolved", of=own, name=experiment, methods=methods),
                step(train, ["resolved", "federation"], "runs", of=own, name=experiment, method=method),
                step(evaluate, ["resolved", "runs"], "result", of=own),
            ],
            namespace=f"methods.{own}",
            inputs={dataset: f"{experiment}/{dataset}" for dataset in ("federation", tuned)},
            outputs={"result": result},
            parameters=parameters,
        )
        for method, (own, result) in zip(methods, results.items(), strict=True)
    ]
    reported = Pipeline(
        [
            step(
                report,
                [settings, tuned, *(f"{own}_result" for own in results)],
                "report",
                section=experiment,
                name=name,
            )
        ],
        namespace=f"methods.{REPORT}",
        inputs={tuned: f"{experiment}/{tuned}", **{f"{own}_result": result for own, result in results.items()}},
        outputs={"report": f"{name}/report"},
        parameters=parameters,
    )
    return sum([data, *boxes], start=reported)


def turn(node: Node) -> tuple[int, int]:
    """Return the priority of a node among runnable nodes: data, one method after the other, results, reports.

    KT-pFL comes first, then local-only training, then all other methods in the order of the registry. Hyperparameters
    are resolved together with the data, so that errors appear before any training.
    """
    box, _, method = (node.namespace or "").partition(".")
    if REPORT in (box, method):
        return 3, 0
    if box == "data" or node.func.__name__ == "resolve":
        return 0, 0
    place = TURNS.index(method) if method in TURNS else len(TURNS)
    return (2 if node.func.__name__ == "evaluate" else 1), place


def sweep_pipeline(name: str) -> Pipeline:
    settings, cells = [f"params:{name}", "parameters"], f"{name}/cells"
    return Pipeline(
        [
            step(sweep.run_sweep, [*settings, "raw_folder"], cells, namespace="sweep", name=name),
            step(sweep.report_sweep, [*settings, cells], f"{name}/report", namespace="report", name=name),
        ]
    )


def tuning_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    settings, cells = [f"params:{name}", f"params:{experiment}"], f"{name}/cells"
    made = [*settings, cells]
    return Pipeline(
        [
            step(tuning.run_tuning, [*settings, "raw_folder"], cells, namespace="tune", name=name, methods=methods),
            step(tuning.choose, made, f"{experiment}/hyperparameters", namespace="report", name=name),
            step(tuning.report_tuning, made, f"{name}/report", namespace="report", name=name),
        ]
    )


def paper_pipeline() -> Pipeline:
    """Return the pipeline ``paper``: a plan, the remaining runs, and one report."""
    settings, planned, failures = f"params:{PAPER}", f"{PAPER}_plan", f"{PAPER}_failures"
    evidence, runs = f"{PAPER}_evidence", f"{PAPER}_runs"
    return Pipeline(
        [
            step(paper.plan, [settings, "parameters", "raw_folder", runs], planned, namespace="plan"),
            step(paper.train, [settings, planned, runs], failures, namespace="train"),
            step(paper.collect, [settings, planned, runs, failures], evidence, namespace="report"),
            step(paper.report_paper, evidence, f"{PAPER}/report", namespace="report"),
        ]
    )


def overview(comparisons: dict[str, Any]) -> Report:
    return overviews.build(comparisons)


def overview_pipeline() -> Pipeline:
    """Return the pipeline ``overview``; it trains nothing."""
    return Pipeline([step(overview, "comparisons", "overview/report")])
