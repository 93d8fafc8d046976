"""Which pipelines there are, and that each has the same shape: data, one box per method, report."""

import inspect
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml
from click import ClickException
from kedro.pipeline import Pipeline
from registered import pipelines

from ktpfl_pipeline.methods import METHODS as KNOWN
from ktpfl_pipeline.methods import compared

HETERO_METHODS, HOMO_METHODS = compared(one_architecture=False), compared(one_architecture=True)
DATASETS = ("digits", "fashion_mnist", "emnist", "cifar")
SWEEPS = (
    *("sweep_local_epochs", "sweep_distillation_steps", "sweep_rho", "sweep_public_batch", "sweep_public_source"),
    *("sweep_alpha", "sweep_knowledge", "sweep_adversaries_digits", "sweep_adversaries_fashion_mnist"),
)


def methods_of(name: str) -> tuple[str, ...]:
    methods = HOMO_METHODS if "homo_" in name else HETERO_METHODS
    return methods if name.startswith(("compare_", "tune_")) else methods[:1]


def experiment_of(name: str) -> str:
    return name.removeprefix("compare_").removeprefix("tune_")


def box(pipeline: Pipeline, method: str) -> set[tuple[str, frozenset[str], frozenset[str]]]:
    """Return the nodes of a method's box with their inputs and outputs, without the method in their names."""

    def plain(*names: str) -> frozenset[str]:
        return frozenset(name.replace(method, "METHOD") for name in names)

    nodes = [node for node in pipeline.nodes if node.namespace == f"methods.{method}"]
    return {(*plain(node._name), plain(*node.inputs), plain(*node.outputs)) for node in nodes}


def test_names() -> None:
    experiments = {f"{kind}_{dataset}" for kind in ("hetero", "homo") for dataset in DATASETS}
    tunings = {f"tune_{name}" for name in experiments}
    experiments |= {"har", "camera_traps", "htfllib", "pathological", "mcmahan", "digits_dirichlet", "shakespeare"}
    experiments |= {"newcomers_digits", "newcomers_fashion_mnist"}
    comparisons = {f"compare_{name}" for name in experiments}
    assert set(pipelines()) == {*experiments, *comparisons, *tunings, *SWEEPS, "overview", "paper", "__default__"}


@pytest.mark.parametrize("name", ["real_clients", "compare_real_clients"])
def test_the_old_command_for_real_clients_names_the_new_one(name: str) -> None:
    with pytest.raises(ClickException, match=rf"There is no pipeline '{name}'. .*python -m ktpfl_flower\.run"):
        pipelines()[name]


@pytest.mark.parametrize(
    ("methods", "some"),
    [(HETERO_METHODS, {"kt_pfl", "fedmd", "local"}), (HOMO_METHODS, {"kt_pfl_params", "fedavg", "local"})],
)
def test_a_comparison_runs_known_methods_once(methods: tuple[str, ...], some: set[str]) -> None:
    """A misspelt line of the registry would be found at the first run only, after the data were made."""
    assert some <= set(methods) <= KNOWN.keys()
    assert len(set(methods)) == len(methods)


def test_an_experiment_alone_is_kt_pfl() -> None:
    assert (HETERO_METHODS[0], HOMO_METHODS[0]) == ("kt_pfl", "kt_pfl_params")


def test_default() -> None:
    assert pipelines()["__default__"] == pipelines()["compare_hetero_digits"]


@pytest.mark.parametrize("name", ["hetero_cifar", "compare_hetero_digits", "compare_homo_emnist"])
class TestShape:
    def test_boxes(self, name: str) -> None:
        """Each node is in one box; those of the methods are in one of their own, so that kedro-viz shows three."""
        methods = {f"methods.{method}" for method in methods_of(name)}
        assert {node.namespace for node in pipelines()[name].nodes} == {"data", "methods.report", *methods}

    def test_the_boxes_of_all_methods_are_alike(self, name: str) -> None:
        assert len({frozenset(box(pipelines()[name], method)) for method in methods_of(name)}) == 1
        assert {short_name for short_name, *_ in box(pipelines()[name], methods_of(name)[0])} == {
            *("resolve_METHOD", "train_METHOD", "evaluate_METHOD"),
        }

    def test_free_inputs(self, name: str) -> None:
        """Nothing is needed but the parameters of the experiment, the folder of raw images, and what was tuned."""
        experiment = experiment_of(name)
        assert pipelines()[name].inputs() == {f"params:{experiment}", "raw_folder", f"{experiment}/hyperparameters"}

    def test_one_result_per_method_leads_to_the_report(self, name: str) -> None:
        experiment = experiment_of(name)
        (report,) = [node for node in pipelines()[name].nodes if node.namespace == "methods.report"]
        assert set(report.inputs) == {
            f"params:{experiment}",
            f"{experiment}/hyperparameters",
            *(f"{experiment}/{method}/result" for method in methods_of(name)),
        }
        assert report.outputs == [f"{name}/report"]

    def test_all_methods_get_the_same_data_and_settings(self, name: str) -> None:
        pipeline, experiment = pipelines()[name], experiment_of(name)
        for method in methods_of(name):
            alone = pipeline.only_nodes_with_namespaces([f"methods.{method}"])
            names = ("federation", "hyperparameters")
            assert alone.inputs() == {f"params:{experiment}", *(f"{experiment}/{name}" for name in names)}

    def test_each_node_shows_its_own_source(self, name: str) -> None:
        """As kedro-viz asks for it: of a partial it shows none."""
        for node in pipelines()[name].nodes:
            assert inspect.isfunction(node.func)
            assert f"def {node.func.__name__}(" in inspect.getsource(node.func)

    def test_no_dot_in_what_is_kept(self, name: str) -> None:
        """A dot means a namespace; outside the boxes, names are paths."""
        assert not [dataset for dataset in pipelines()[name].outputs() if "." in dataset]


@pytest.mark.parametrize("name", SWEEPS)
class TestSweep:
    def test_its_settings_are_under_conf(self, name: str) -> None:
        """Which experiment it sweeps is one of them, so it takes the settings of all."""
        assert pipelines()[name].inputs() == {f"params:{name}", "parameters", "raw_folder"}
        base = Path(__file__).parents[1] / "conf" / "base" / "parameters_sweep.yml"
        assert name in yaml.safe_load(base.read_text())

    def test_what_it_leaves(self, name: str) -> None:
        """The results of all points, and a report that can be drawn again from them alone."""
        assert {node.namespace for node in pipelines()[name].nodes} == {"sweep", "report"}
        report = pipelines()[name].only_nodes_with_namespaces(["report"])
        assert report.inputs() - {f"params:{name}", "parameters"} == {f"{name}/cells"}


@pytest.mark.parametrize("name", ["tune_hetero_digits", "tune_homo_cifar"])
class TestTuning:
    def test_it_leaves_what_its_comparison_reads(self, name: str) -> None:
        hyperparameters = f"{experiment_of(name)}/hyperparameters"
        assert hyperparameters in pipelines()[name].outputs()
        assert hyperparameters in pipelines()[f"compare_{experiment_of(name)}"].inputs()

    def test_it_tunes_the_methods_of_the_comparison(self, name: str) -> None:
        (run,) = [node for node in pipelines()[name].nodes if node.namespace == "tune"]
        assert inspect.signature(run.func).parameters["methods"].default == methods_of(name)

    def test_values_and_report_can_be_made_again_without_training(self, name: str) -> None:
        report = pipelines()[name].only_nodes_with_namespaces(["report"])
        assert report.inputs() == {f"params:{name}", f"params:{experiment_of(name)}", f"{name}/cells"}


def test_a_misspelt_name_is_a_sentence() -> None:
    with pytest.raises(ClickException, match=r"There is no pipeline 'hetero_digit'; did you mean 'hetero_digits'\?"):
        pipelines()["hetero_digit"]


def test_a_name_that_is_near_none_brings_them_all() -> None:
    """No other command is named, which may not be there: outside a project there is no `kedro`."""
    with pytest.raises(ClickException) as refused:
        pipelines()["xyzzy"]
    said = refused.value.message
    assert said.startswith("There is no pipeline 'xyzzy'; choose from the experiments ")
    assert "kedro" not in said
    told = set(re.findall(r"\w+", said))
    plain = {name.removeprefix("compare_").removeprefix("tune_") for name in pipelines()} - {"__default__"}
    assert plain <= told
    assert {"compare_", "tune_"} <= told
    assert "__default__" not in told


def test_a_pipeline_writes_its_own_report() -> None:
    for name in pipelines().keys() - {"__default__"}:
        assert [output for output in pipelines()[name].outputs() if output.endswith("/report")] == [f"{name}/report"]


def test_listing_pipelines_imports_nothing_slow() -> None:
    """`kedro registry list` and `kedro --help` load these modules; torch alone would double their time."""
    slow = ["torch", "torchvision", "mlflow", "matplotlib", "pandas", "sklearn", "optuna"]
    script = (
        "import sys; from ktpfl_pipeline import settings; from ktpfl_pipeline.pipeline_registry import *; "
        f"register_pipelines(); print(*[name for name in {slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["hetero_digits", "compare_hetero_digits", "tune_hetero_digits", "paper"])
def test_layers_are_not_circular(name: str) -> None:
    """kedro-viz shows no layers at all where a layer is before and after another one."""
    catalog = yaml.safe_load((Path(__file__).parents[1] / "conf/base/catalog.yml").read_text("utf-8"))
    layers = {
        pattern: entry.get("metadata", {}).get("kedro-viz", {}).get("layer") for pattern, entry in catalog.items()
    }

    def layer(dataset: str) -> str | None:
        patterns = {re.sub(r"\\{[^}]*\\}", ".+", re.escape(pattern)): found for pattern, found in layers.items()}
        fitting = [pattern for pattern in patterns if re.fullmatch(pattern, dataset)]
        return patterns[max(fitting, key=lambda pattern: len(pattern.replace(".+", "")))] if fitting else None

    after: dict[str, set[str]] = {}
    for node in pipelines()[name].nodes:
        for given, made in ((layer(given), layer(made)) for given in node.inputs for made in node.outputs):
            if given and made and given != made:
                after.setdefault(given, set()).add(made)
    assert after
    tuple(TopologicalSorter(after).static_order())  # raises CycleError
