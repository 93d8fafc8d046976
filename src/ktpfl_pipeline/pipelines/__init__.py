"""Pipelines of Kedro: those of experiments, and those of studies of several settings.

Arguments that the nodes share:
    experiment: the settings.
    name: the name of the experiment, sweep, tuning or report.
    method: a method's registry name or dotted path; `methods` are all methods that are run.
    raw_folder: the folder with samples and downloads.
    private: the private `LabelledDataset`, (M, C, H, W) uint8 with labels.
    public_images: (M, C, H, W) uint8, from which the public set is drawn.
    public_set: the `PublicSet`, with the indices of every seed.
    partition: a table with the columns seed, client, split, index, label.
    federation: the `FederatedData`, for every seed.
"""
