"""The shape of every experiment: a data box, one box per method, a report box.

              ┌─ kt_pfl ─┐
data ─────────┼─ fedmd ──┼───── report
              └─ local ──┘
"""

from collections.abc import Sequence

from kedro.pipeline import Pipeline

from ktpfl_pipeline.methods import slug
from ktpfl_pipeline.pipelines import download, evaluation, federated_training, partition, public_set, reporting, tune
from ktpfl_pipeline.pipelines.step import step


def experiment_pipeline(name: str, experiment: str, methods: Sequence[str]) -> Pipeline:
    """Return the pipeline `name` that runs `methods` on one experiment and reports on them together.

    Args:
        name: of the pipeline, and of its report.
        experiment: whose parameters and data it uses; the data and the results are shared by its pipelines.
        methods: names in the registry of methods, or dotted paths.
    """
    parameters = {"params:experiment": f"params:{experiment}"}
    tuned = f"{experiment}/hyperparameters"
    resolve = step(tune.resolve, ["params:experiment", tuned], "resolved", name=experiment, methods=methods)
    made = ("federation", "partition", "labels_per_client", "resolved")
    blocks = (download.create_pipeline(), public_set.create_pipeline(), partition.create_pipeline())
    data = Pipeline(
        sum(blocks, start=Pipeline([resolve])),
        namespace="data",
        inputs={"raw_folder", tuned},
        outputs={dataset: f"{experiment}/{dataset}" for dataset in made},
        parameters=parameters,
    )
    results = {method: f"{experiment}/{slug(method)}/result" for method in methods}
    boxes = [
        Pipeline(
            federated_training.create_pipeline(experiment, method) + evaluation.create_pipeline(),
            namespace=slug(method),
            inputs={dataset: f"{experiment}/{dataset}" for dataset in ("federation", "resolved")},
            outputs={"result": result},
        )
        for method, result in results.items()
    ]
    report = Pipeline(
        reporting.create_pipeline(name, methods),
        namespace="report",
        inputs={f"{slug(method)}_result": result for method, result in results.items()},
        outputs={"report": f"{name}/report"},
        parameters=parameters,
    )
    return sum([data, *boxes], start=report)
