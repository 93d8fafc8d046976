"""Pipelines of Kedro: those of experiments, and those of studies of several settings.

Arguments that the nodes share:
    name: the name of the experiment, sweep, tuning or report.
    method: a method's registry name or dotted path; `methods` are all methods that are run.
    raw_folder: the folder with samples and downloads.
    private: the private `LabeledDataset`, (M, ...).
    public_images: (M, ...), from which the public set is drawn; for each seed, `public_set` has the indices.
    partition: a table with the columns seed, client, split, index, label.
    federation: the `FederatedData`, for every seed.
"""
