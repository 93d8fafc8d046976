"""Nodes around the partition."""

import logging
from pathlib import Path
from typing import Any

from ktpfl_pipeline.config.schema import Experiment

logger = logging.getLogger(__name__)


def partition_clients(experiment: Experiment, private: Any, public_set: Any) -> Any:
    """Return the partition of every seed as a table with the columns seed, client, split, index, label.

    With the scheme ``natural`` there is also a column owner, the source's name of the client.
    """
    from ktpfl_pipeline.core.machine.memory import used_up_by

    with used_up_by("Partitioning the samples"):
        return _partition_clients(experiment, private, public_set)


def _partition_clients(experiment: Experiment, private: Any, public_set: Any) -> Any:
    from ktpfl_pipeline.data.partition import NATURAL
    from ktpfl_pipeline.pipelines.partition.table import owners, partitions_of, to_table

    partitions = partitions_of(experiment, private, public_set)
    natural = experiment.partition.scheme == NATURAL
    return to_table(partitions, private.labels, owners(private, partitions) if natural else None)


def join(
    experiment: Experiment,
    private: Any,
    public_set: Any,
    partition: Any,
    raw_folder: Path,
    *,
    methods: tuple[str, ...] = (),
) -> Any:
    """Return the `FederatedData` for all methods; `methods` are the methods that will be run on it.

    Raises:
        InputError: if the partition that was saved is not what these settings draw, or if a method cannot use the
            clients' models.
    """
    from ktpfl_pipeline.core.machine.memory import used_up_by

    with used_up_by("Preparing the data of the runs"):
        return _join(experiment, private, public_set, partition, raw_folder, methods)


def _join(
    experiment: Experiment,
    private: Any,
    public_set: Any,
    partition: Any,
    raw_folder: Path,
    methods: tuple[str, ...],
) -> Any:
    from ktpfl_pipeline.core.errors import InputError
    from ktpfl_pipeline.pipelines.partition.table import to_table

    made = federated(experiment, private, public_set, raw_folder)
    if not to_table(made.partitions, private.labels).equals(partition.drop(columns="owner", errors="ignore")):
        raise InputError(
            "The partition.csv of this experiment below data/03_primary is not what these settings draw: it was saved "
            "with others, or another run of the experiment has just written its own. Run the whole pipeline, without "
            "--only-missing-outputs, which draws it again; or set back what it was drawn with: seeds, clients, "
            "partition, or the private and public samples."
        )
    if methods:
        check_models(experiment, made, methods)
    return made


def check_models(experiment: Experiment, data: Any, methods: tuple[str, ...]) -> None:
    """Check that all methods can use the clients' models, before the first one trains.

    Raises:
        InputError: naming all that do not fit together.
    """
    from ktpfl_pipeline.core.rounds import promises
    from ktpfl_pipeline.methods import create
    from ktpfl_pipeline.pipelines.federated_training.assembly import assemble

    made = {name: create(name, experiment.methods.get(name)) for name in methods}
    promises.check_models(made, assemble(experiment, data, experiment.seeds[0]))


def federated(experiment: Experiment, private: Any, public_set: Any, raw_folder: Path) -> Any:
    """Return the `FederatedData` that these settings draw."""
    from ktpfl_pipeline.data.federated import FederatedData
    from ktpfl_pipeline.data.partition import NATURAL
    from ktpfl_pipeline.pipelines.partition.table import owners, partitions_of

    partitions, asked = partitions_of(experiment, private, public_set), experiment.partition
    skew = None if asked.feature_skew == "none" else (asked.feature_skew, asked.feature_levels)
    names = owners(private, partitions) if asked.scheme == NATURAL else {}
    return FederatedData(
        private, public_set, partitions, experiment.of_data(), skew, names, _pretrained(experiment, private, raw_folder)
    )


def _pretrained(experiment: Experiment, private: Any, raw_folder: Path) -> dict[str, Any]:
    """Return the pretrained weights by architecture, each tried on its model."""
    from ktpfl_pipeline import models
    from ktpfl_pipeline.data.sources.arguments import path_in

    found = {}
    own = models.transformers.weights(experiment.models())
    for name, file in {**own, **experiment.pretrained}.items():
        path = path_in("pretrained", file, raw_folder, "pretrained: {resnet18: weights/resnet18.pth}")
        found[name] = models.pretrained.read(path)
        model = models.build(name, private.shape, private.classes)
        taken, all_of_them = models.pretrained.load(name, model, found[name]), len(list(model.parameters()))
        logger.info(f"{name} starts from {file}: {taken} of its {all_of_them} parameters, the others drawn at random.")
    return found


def draw_partition(federation: Any) -> Any:
    """Return the labels of each client, of the first seed, as an interactive stacked bar chart."""
    import pandas as pd

    from ktpfl_pipeline.reports.interactive import labels_per_client

    first = next(iter(federation.seeds.values()))
    counts, names = first.label_counts, first.names or range(len(first.label_counts))
    called = first.private.class_names or range(first.classes)
    rows = [(names[client], called[label], int(counts[client, label])) for client, label in counts.nonzero().tolist()]
    return labels_per_client(pd.DataFrame(rows, columns=["client", "label", "count"]))
