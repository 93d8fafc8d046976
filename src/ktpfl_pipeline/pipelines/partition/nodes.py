"""Nodes around the partition."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def partition_clients(experiment: Experiment, private: Any, public_set: Any) -> Any:
    """Return who owns what for every seed, as a table with the columns seed, client, split, index, label."""
    from ktpfl_pipeline.pipelines.partition.table import partition_for_seed, to_table

    partitions = {seed: partition_for_seed(experiment, private, public_set, seed) for seed in experiment.seeds}
    return to_table(partitions, private.labels)


def draw_partition(partition: Any) -> Any:
    """Return the labels of each client, of the first seed, as an interactive stacked bar chart."""
    from ktpfl_pipeline.reports.interactive import labels_per_client

    first = partition[partition["seed"] == partition["seed"].iloc[0]]
    return labels_per_client(first.groupby(["client", "label"]).size().reset_index(name="count"))


def join(private: Any, public_set: Any, partition: Any) -> Any:
    """Return the `FederatedData` that every method is given, with the indices as they were saved."""
    from ktpfl_pipeline.data.federated import FederatedData
    from ktpfl_pipeline.pipelines.partition.table import from_table

    return FederatedData(private, public_set, from_table(partition))
