"""The shape of every experiment: a data box, one box per method, a report box.

              ┌─ kt_pfl ─┐
data ─────────┼─ fedmd ──┼───── report
              └─ local ──┘
"""

from collections.abc import Sequence
from functools import partial, update_wrapper

from kedro.pipeline import Pipeline, node

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines import data, federated_training, reporting, tune


def experiment_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that runs `methods` on one experiment and reports on them together.

    Args:
        name: of the pipeline, and of its report.
        experiment: whose parameters and data it uses; the data and the results are shared by its pipelines.
        methods: names in the registry of methods, or dotted paths.
    """
    parameters = {"params:experiment": f"params:{experiment}"}
    resolve = update_wrapper(partial(tune.resolve, name=experiment, methods=methods), tune.resolve)
    inputs = ["params:experiment", f"{experiment}/hyperparameters"]
    made = ("federation", "partition", "labels_per_client", "resolved")
    data_box = Pipeline(
        data.create_pipeline() + Pipeline([node(resolve, inputs, "resolved", name="resolve_hyperparameters")]),
        namespace="data",
        inputs={"raw_folder", f"{experiment}/hyperparameters"},
        outputs={dataset: f"{experiment}/{dataset}" for dataset in made},
        parameters=parameters,
    )
    boxes = [
        Pipeline(
            federated_training.create_pipeline(experiment, method),
            namespace=slug(method),
            inputs={dataset: f"{experiment}/{dataset}" for dataset in ("federation", "resolved")},
            outputs={"result": f"{experiment}/{slug(method)}/result"},
        )
        for method in methods
    ]
    report = Pipeline(
        reporting.create_pipeline(name, methods),
        namespace="report",
        inputs={f"{slug(method)}_result": f"{experiment}/{slug(method)}/result" for method in methods},
        outputs={"report": f"{name}/report"},
        parameters=parameters,
    )
    return sum([data_box, *boxes], start=report)
