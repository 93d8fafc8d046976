"""Every pipeline by name. An experiment is a line in conf/; what is compared in it is a line here."""

from kedro.pipeline import Pipeline

from ktpfl_pipeline.pipelines import overview, sweep
from ktpfl_pipeline.pipelines.template import experiment_pipeline

HETERO_EXPERIMENTS = ("hetero_digits", "hetero_fashion_mnist", "hetero_emnist", "hetero_cifar")
HETERO_METHODS = (
    *("kt_pfl", "kt_pfl_likelihood", "sim_pfl", "topk_pfl"),
    *("fedmd", "feddf", "feddf_soft", "pfeddf"),
    *("ds_fl", "comet", "fedproto", "fml"),
    "local",
)
SWEEPS = (  # the paper's Tables 3 to 6
    *("sweep_local_epochs", "sweep_distillation_steps", "sweep_rho"),
    *("sweep_public_batch", "sweep_public_source"),
)
DEFAULT = "compare_hetero_digits"


def register_pipelines() -> dict[str, Pipeline]:
    """Return ``<experiment>`` (KT-pFL alone), ``compare_<experiment>`` (with its rivals), sweeps, and the default."""
    pipelines = {}
    for experiment in HETERO_EXPERIMENTS:
        pipelines[experiment] = experiment_pipeline(experiment, experiment, ("kt_pfl",))
        compare = f"compare_{experiment}"
        pipelines[compare] = experiment_pipeline(compare, experiment, HETERO_METHODS)
    pipelines |= {name: sweep.create_pipeline(name) for name in SWEEPS}
    return {**pipelines, "overview": overview.create_pipeline(), "__default__": pipelines[DEFAULT]}
