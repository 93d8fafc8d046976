"""Nodes around the partition."""

from typing import Any

from ktpfl_pipeline.config.schema import Experiment


def partition_clients(experiment: Experiment, private: Any, public_set: Any) -> Any:
    """Return who owns what for every seed, as a table with the columns seed, client, split, index, label."""
    from ktpfl_pipeline.pipelines.partition.table import partition_for_seed, to_table

    partitions = {seed: partition_for_seed(experiment, private, public_set, seed) for seed in experiment.seeds}
    return to_table(partitions, private.labels)


def join(experiment: Experiment, private: Any, public_set: Any, partition: Any) -> Any:
    """Return the `FederatedData` that every method is given, with the indices as they were saved."""
    from ktpfl_pipeline.data.federated import FederatedData
    from ktpfl_pipeline.pipelines.partition.table import from_table

    return FederatedData(private, public_set, from_table(partition), experiment.of_data())


def draw_partition(federation: Any) -> Any:
    """Return the labels of each client, of the first seed, as an interactive stacked bar chart."""
    import pandas as pd

    from ktpfl_pipeline.reports.interactive import labels_per_client

    counts = next(iter(federation.seeds.values())).label_counts
    rows = [(int(client), int(label), int(counts[client, label])) for client, label in counts.nonzero()]
    return labels_per_client(pd.DataFrame(rows, columns=["client", "label", "count"]))
