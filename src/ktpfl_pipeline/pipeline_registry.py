"""Every pipeline by name. An experiment is a line in conf/, and so is what is compared in it."""

from click import ClickException
from kedro.pipeline import Pipeline

from ktpfl_pipeline.config.checks import nearest
from ktpfl_pipeline.config.schema import TUNE
from ktpfl_pipeline.pipelines import overview, sweep, tune
from ktpfl_pipeline.pipelines.compared import methods_of
from ktpfl_pipeline.pipelines.template import experiment_pipeline

HETERO_EXPERIMENTS = ("hetero_digits", "hetero_fashion_mnist", "hetero_emnist", "hetero_cifar")
HOMO_EXPERIMENTS = ("homo_digits", "homo_fashion_mnist", "homo_emnist", "homo_cifar")
SWEEPS = (  # the paper's Tables 3 to 6
    *("sweep_local_epochs", "sweep_distillation_steps", "sweep_rho"),
    *("sweep_public_batch", "sweep_public_source"),
    *("sweep_adversaries_digits", "sweep_adversaries_fashion_mnist"),  # ours
)
DEFAULT = "compare_hetero_digits"


class Pipelines(dict[str, Pipeline]):
    """Pipelines by name."""

    def __missing__(self, name: str) -> Pipeline:
        """Raise the error of the command for a name that does not exist, with the nearest one."""
        hint = nearest(name, self, "`kedro registry list` names them all.")
        raise ClickException(f"There is no pipeline {name!r}; {hint}")


def register_pipelines() -> dict[str, Pipeline]:
    """Return every pipeline by name.

    Of each experiment there are ``<experiment>`` (KT-pFL alone), ``compare_<experiment>`` (with its rivals) and
    ``tune_<experiment>`` (the hyperparameters of these). Which rivals, conf/ says: see `methods_of`.
    """
    pipelines = {}
    for experiment in (*HETERO_EXPERIMENTS, *HOMO_EXPERIMENTS):
        methods = methods_of(experiment, one_architecture=experiment in HOMO_EXPERIMENTS)
        compare, tuning = f"compare_{experiment}", f"{TUNE}{experiment}"
        pipelines[experiment] = experiment_pipeline(experiment, experiment, methods[:1])
        pipelines[compare] = experiment_pipeline(compare, experiment, methods)
        pipelines[tuning] = tune.create_pipeline(tuning, experiment, methods)
    pipelines |= {name: sweep.create_pipeline(name) for name in SWEEPS}
    return Pipelines(pipelines, overview=overview.create_pipeline(), __default__=pipelines[DEFAULT])
