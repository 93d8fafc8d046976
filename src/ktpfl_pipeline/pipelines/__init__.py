"""The Kedro pipelines: pipelines of experiments, and pipelines of studies, which run several settings.

Arguments that nodes share:
    name: the name of the experiment, sweep, tuning or report.
    method: a method's registry name or dotted path; `methods` are all methods that are run.
    raw_folder: the folder with samples and downloads.
    private: the private samples, a `LabeledDataset`, (M, ...).
    public_images: the samples from which the public set is drawn, (M, ...); `public_set` has their indices by seed.
    partition: a table with the columns seed, client, split, index, label.
    federation: the `FederatedData` of all seeds.
"""
