"""The template of every experiment: a namespace for data, and one for methods, with one box per method and a report.

          ┌ methods ──────────────┐
          │    ┌─ kt_pfl ─┐       │
data ─────┼────┼─ fedmd  ─┼─ report
          │    └─ local  ─┘       │
          └───────────────────────┘

kedro-viz therefore opens on two boxes for any number of methods. Data that cross a box are stored, so that each box can
run in a separate process: ``kedro run --namespaces=methods.kt_pfl``.
"""

from collections.abc import Sequence

from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from ktpfl_pipeline.methods import METHODS, compared, slug
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.evaluation.nodes import evaluate
from ktpfl_pipeline.pipelines.federated_training.nodes import resolve, settle, train
from ktpfl_pipeline.pipelines.partition.nodes import draw_partition, join, partition_clients
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set
from ktpfl_pipeline.pipelines.reporting.nodes import report
from ktpfl_pipeline.pipelines.step import step

REPORT = "report"
TURNS = (*(compared(one_architecture)[0] for one_architecture in (False, True)), "local", *METHODS)


def experiment_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that runs `methods` on one experiment and reports on them together.

    Args:
        name: of the pipeline, and of its report.
        experiment: whose parameters and data it uses; the data and the results are shared by its pipelines.
        methods: names in the registry of methods, or dotted paths.
    """
    settings, tuned, parameters = "params:experiment", "hyperparameters", {"params:experiment": f"params:{experiment}"}
    made = ("federation", "partition", "labels_per_client")
    data = Pipeline(
        _of_source(tuple(methods)),
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
                step(settle, ["resolved", "federation"], "settled", of=own, name=experiment),
                step(train, ["settled", "federation"], "runs", of=own, name=experiment, method=method),
                step(evaluate, ["settled", "runs"], "result", of=own),
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


def _of_source(methods: tuple[str, ...]) -> list[Node]:
    """Return the steps from a source to the federation's data, and to a figure of the clients' data."""
    settings = "params:experiment"
    made_of = [settings, "private", "public_set"]
    return [
        step(load_private, [settings, "raw_folder"], "private"),
        step(load_public, [settings, "raw_folder", "private"], "public_images"),
        step(sample_public_set, [settings, "private", "public_images"], "public_set"),
        step(partition_clients, made_of, "partition"),
        step(join, [*made_of, "partition", "raw_folder"], "federation", methods=methods),
        step(draw_partition, "federation", "labels_per_client"),
    ]


def turn(node: Node) -> tuple[int, int]:
    """Return the priority of a node among nodes that could run: data, one method after the other, reports.

    KT-pFL comes first, then local-only training, then the others in the order of the registry. Hyperparameters are
    resolved together with the data, so that errors appear before any training.
    """
    box, _, method = (node.namespace or "").partition(".")
    if REPORT in (box, method):
        return 2, 0
    if box == "data" or node.func.__name__ == "resolve":
        return 0, 0
    return 1, TURNS.index(method) if method in TURNS else len(TURNS)
