"""The blocks of a pipeline, and the template that joins them into one per experiment.

Arguments that the nodes of all blocks share:
    experiment: the settings.
    name: the experiment's; of a sweep, a tuning or a report, its own.
    method: its name in the registry, or its dotted path; `methods` are all that are run.
    raw_folder: where samples are, and where downloads go.
    private: the private `LabelledDataset`, (M, C, H, W) uint8 with labels.
    public_images: (M, C, H, W) uint8, what the public set is taken from.
    public_set: the `PublicSet`, with the indices of every seed.
    partition: a table with the columns seed, client, split, index, label.
    federation: the `FederatedData`, for every seed.
"""
