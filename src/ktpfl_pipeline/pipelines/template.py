"""The shape of every experiment: a data box, and in a box of all methods one for each and one for their report.

          ┌ methods ──────────────┐
          │    ┌─ kt_pfl ─┐       │
data ─────┼────┼─ fedmd  ─┼─ report
          │    └─ local  ─┘       │
          └───────────────────────┘

So kedro-viz opens on two boxes, however many methods there are. What crosses a box is stored, so that each runs in a
process of its own: ``kedro run --namespaces=methods.kt_pfl``.
"""

from collections.abc import Sequence

from kedro.pipeline import Pipeline
from kedro.pipeline.node import Node

from ktpfl_pipeline.methods import METHODS, compared, slug
from ktpfl_pipeline.pipelines import download, evaluation, federated_training, partition, public_set, reporting, tune
from ktpfl_pipeline.pipelines.step import step

REPORT = "report"
TURNS = (*(compared(one_architecture)[0] for one_architecture in (False, True)), "local", *METHODS)


def experiment_pipeline(name: str, experiment: str, methods: Sequence[str], real: bool = False) -> Pipeline:
    """Return the pipeline `name` that runs `methods` on one experiment and reports on them together.

    Args:
        name: of the pipeline, and of its report.
        experiment: whose parameters and data it uses; the data and the results are shared by its pipelines.
        methods: names in the registry of methods, or dotted paths.
        real: whether its clients are processes of their own, and the server has their samples nowhere.
    """
    parameters = {"params:experiment": f"params:{experiment}"}
    made = ("federation",) if real else ("federation", "partition", "labels_per_client")
    data = Pipeline(
        public_set.of_real_clients(methods)
        if real
        else download.create_pipeline() + public_set.create_pipeline() + partition.create_pipeline(),
        namespace="data",
        inputs={"raw_folder"},
        outputs={dataset: f"{experiment}/{dataset}" for dataset in made},
        parameters=parameters,
    )
    settings = ["params:experiment", "hyperparameters"]
    results = {slug(method): f"{experiment}/{slug(method)}/result" for method in methods}
    boxes = [
        Pipeline(
            Pipeline([step(tune.resolve, settings, "resolved", of=own, name=experiment, methods=methods)])
            + federated_training.create_pipeline(experiment, method)
            + evaluation.create_pipeline(method),
            namespace=f"methods.{own}",
            inputs={dataset: f"{experiment}/{dataset}" for dataset in ("federation", "hyperparameters")},
            outputs={"result": result},
            parameters=parameters,
        )
        for method, (own, result) in zip(methods, results.items(), strict=True)
    ]
    report = Pipeline(
        reporting.create_pipeline(name, methods),
        namespace=f"methods.{REPORT}",
        inputs={f"{own}_result": result for own, result in results.items()},
        outputs={"report": f"{name}/report"},
        parameters=parameters,
    )
    return sum([data, *boxes], start=report)


def turn(node: Node) -> tuple[int, int]:
    """Return the turn of a node among those that could run: data, one method after the other, reports.

    KT-pFL comes first, then training alone, then the others as they stand in the registry. Hyperparameters are resolved
    with the data, so that none is trained in vain.
    """
    box, _, method = (node.namespace or "").partition(".")
    if REPORT in (box, method):
        return 2, 0
    if box == "data" or node.func.__name__ == "resolve":
        return 0, 0
    return 1, TURNS.index(method) if method in TURNS else len(TURNS)
