"""What stands under conf/: the paper's settings, overlays that change only what is there, a catalog without holes."""

import copy
import math
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases import case
from kedro.config import OmegaConfigLoader
from kedro.io import DataCatalog, MemoryDataset
from project_copy import quick_yaml
from registered import pipelines

from ktpfl_pipeline import settings
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.studies import Range, Sweep, Tune
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.validation import plain
from ktpfl_pipeline.methods import compared, create

CONF = Path(__file__).parents[2] / "conf"
HETERO_EXPERIMENTS, HOMO_EXPERIMENTS = (
    tuple(f"{kind}_{dataset}" for dataset in ("digits", "fashion_mnist", "emnist", "cifar"))
    for kind in ("hetero", "homo")
)
SWEEPS = tuple(
    f"sweep_{name}"
    for name in (
        *("local_epochs", "distillation_steps", "rho", "public_batch", "public_source"),
        *("alpha", "adversaries_digits", "adversaries_fashion_mnist", "knowledge"),
    )
)
PAPER = {  # KT-pFL, section 5.1; digits are too few for its public batch
    "clients": 20,
    "participation": 1.0,
    "architectures": ["lenet", "alexnet", "resnet18", "shufflenet_v2"],
    "training.epochs": 20,
    "training.batch_size": 128,
    "training.learning_rate": {"hetero_cifar": 0.02, "": 0.01},
    "distillation.epochs": 1,
    "distillation.batch_size": 256,
    "distillation.learning_rate": {"hetero_cifar": 0.02, "": 0.01},
    "distillation.temperature": 1.0,
    "public.batch": {"hetero_digits": 500, "": 3000},
    "public.source": {"hetero_digits": "open_part", "hetero_cifar": "cifar100", "": "mnist"},
    "private.source": {
        "hetero_digits": "digits",
        "hetero_fashion_mnist": "fashion_mnist",
        "hetero_emnist": "emnist:letters",
        "hetero_cifar": "cifar10",
    },
    "private.classes": {"hetero_emnist": list(range(10)), "": None},
    "private.samples": None,
    "partition.test_share": 0.25,
    "image.channels": {"hetero_cifar": 3, "": 1},
    "image.size": {"hetero_cifar": 32, "": 28},
}
CHOSEN = {  # on validation data, with the same budget for each method: what the paper leaves open, or scales otherwise
    "methods.kt_pfl.rho": 2.0,
    "methods.kt_pfl_likelihood.rho": 2.0,
    "methods.sim_pfl.temperature": 3.0,
    "methods.topk_pfl.k": 10,
    "methods.pfeddf.epochs": 10,
    "methods.fml.alpha": 0.9,
    "methods.fml.beta": 0.9,
}
HOMO_PAPER = {  # one architecture, section 5.1 and Table 2; the learning rate is in the caption of its figure
    **{name: PAPER[name] for name in ("clients", "participation", "training.epochs", "training.batch_size")},
    **{name: PAPER[name] for name in ("private.samples", "partition.test_share")},
    "architectures": ["mcmahan_cnn"],
    "training.learning_rate": 0.005,
}
METHODS = dict.fromkeys(HETERO_EXPERIMENTS, compared(one_architecture=False)) | dict.fromkeys(
    HOMO_EXPERIMENTS, compared(one_architecture=True)
)
MEMORY = {
    "paper_failures",
    "paper_plan",
    "private",
    "public_images",
    "public_set",
    "runs",
    "resolved",
    "settled",
}  # rebuilt in seconds, so never on disk


@cache
def _loaded(environment: str, kind: str) -> dict[str, Any]:
    loader = OmegaConfigLoader(conf_source=str(CONF), env=environment, **settings.CONFIG_LOADER_ARGS)
    with quick_yaml():
        return dict(loader[kind])


def load(environment: str, kind: str = "parameters") -> dict[str, Any]:
    return copy.deepcopy(_loaded(environment, kind))


@cache
def experiments(environment: str) -> dict[str, Experiment]:
    sections = parsing.merged(load(environment), {})
    return {name: parsing.parse(name, sections[name]) for name in parsing.experiments(sections)}


@cache
def sweeps(environment: str) -> dict[str, Sweep]:
    sections = parsing.merged(load(environment), {})
    return {name: parsing.parse_sweep(name, sections[name], sections) for name in sections if name in SWEEPS}


@cache
def tunings(environment: str) -> dict[str, Tune]:
    sections = parsing.merged(load(environment), {})
    return {name: parsing.parse_tune(name, sections[name], sections) for name in sections if name.startswith("tune_")}


def value_at(experiment: Experiment, path: str) -> Any:
    value: Any = plain(experiment)
    for name in path.split("."):
        value = value[name]
    return value


def leaves(values: Any, path: str = "") -> list[str]:
    if not isinstance(values, dict):
        return [path]
    return [leaf for name, inner in values.items() for leaf in leaves(inner, f"{path}.{name}".lstrip("."))]


FIRST_RUN = {"first_run": ["like"], "sweep_first_run": ["experiment", "parameter", "values", "methods"]}
"""The sections that only conf/quick has, for `make run`, with what they set besides settings of an experiment."""


class TestExperiments:
    @pytest.mark.parametrize("environment", ["base", "quick", "results", "test"])
    def test_every_one_parses_and_has_its_pipelines(self, environment: str) -> None:
        found = experiments(environment)
        assert set(METHODS) <= set(found)
        assert set(found) <= {*pipelines(), *FIRST_RUN}

    def test_base_is_the_paper(self) -> None:
        for experiment in HETERO_EXPERIMENTS:
            with case(experiment):
                configured = experiments("base")[experiment]
                for path, expected in PAPER.items():
                    wanted = expected.get(experiment, expected.get("")) if isinstance(expected, dict) else expected
                    assert value_at(configured, path) == wanted, path

    def test_what_was_chosen_on_validation_data(self) -> None:
        for experiment in HETERO_EXPERIMENTS:
            with case(experiment):
                configured = experiments("base")[experiment]
                assert {path: value_at(configured, path) for path in CHOSEN} == CHOSEN

    def test_methods_have_their_defaults_but_where_their_pages_say_so(self) -> None:
        """So that Python and conf/ run the same method."""
        changed: dict[str, Any] = {}
        for experiment in (*HETERO_EXPERIMENTS, *HOMO_EXPERIMENTS):
            for method, values in experiments("base")[experiment].methods.items():
                default = asdict(create(method))
                changed |= {f"{method}.{name}": value for name, value in values.items() if default[name] != value}
        fine_tuning = {"pfeddf.epochs": 10, "pfeddf_soft.epochs": 10}
        assert changed == {"topk_pfl.k": 10, **fine_tuning, "fml.alpha": 0.9, "fml.beta": 0.9}

    def test_one_architecture_is_the_papers_other_experiment(self) -> None:
        """On the same images as several architectures, less an open part that nobody learns from."""
        for dataset in ("digits", "fashion_mnist", "emnist", "cifar"):
            with case(dataset):
                homo, hetero = (experiments("base")[f"{kind}_{dataset}"] for kind in ("homo", "hetero"))
                assert {path: value_at(homo, path) for path in HOMO_PAPER} == HOMO_PAPER
                assert (homo.private, homo.image) == (hetero.private, hetero.image)
                assert (homo.public.source, homo.public.share) == ("open_part", 0.05)

    def test_one_architecture_in_every_environment(self) -> None:
        for environment in ("base", "quick", "results", "test"):
            with case(environment):
                found = experiments(environment)
                assert {len(found[experiment].architectures) for experiment in HOMO_EXPERIMENTS} == {1}

    def test_a_pipeline_finds_the_settings_of_its_methods(self) -> None:
        """A method that is not in `methods` would silently run with its defaults."""
        for experiment in METHODS:
            with case(experiment):
                # run where they are named
                fine_tuned = {"fedavg_ft"} if experiment.startswith("homo") else {"pfeddf", "pfeddf_soft"}
                assert set(experiments("base")[experiment].methods) == set(METHODS[experiment]) | fine_tuned

    @pytest.mark.parametrize("environment", ["quick", "test"])
    def test_an_overlay_is_lighter(self, environment: str) -> None:
        base, overlay = experiments("base"), experiments(environment)
        light = {"har", "camera_traps", "shakespeare"} if environment == "quick" else set()  # as they are
        for name in base.keys() - light:
            assert overlay[name].rounds < base[name].rounds
            assert overlay[name].training.epochs < base[name].training.epochs or base[name].training.epochs == 1
            if name not in HOMO_EXPERIMENTS and environment == "test":
                assert overlay[name].public.batch < base[name].public.batch or base[name].public.batch == 50

    @pytest.mark.parametrize("environment", ["quick", "test"])
    def test_an_overlay_leaves_the_task_alone(self, environment: str) -> None:
        """Neither the kind of images nor the methods: only how many there are, and how much is done with them."""
        base, overlay = experiments("base"), experiments(environment)
        for experiment in METHODS:
            for path in ("private.source", "private.classes", "public.source", "image", "methods"):
                assert value_at(overlay[experiment], path) == value_at(base[experiment], path), (experiment, path)


class TestSweeps:
    @pytest.mark.parametrize("environment", ["base", "quick", "test"])
    def test_every_one_parses_with_local_only_beside_it(self, environment: str) -> None:
        found = sweeps(environment)
        assert set(found) == set(SWEEPS)
        for name, sweep in found.items():
            lies = name.startswith("sweep_adversaries")
            expected = ["kt_pfl", "sim_pfl", "fedmd", "local"] if lies else ["kt_pfl", "local"]
            assert sweep.methods == (["kt_pfl", "fedmd", "ds_fl", "local"] if name == "sweep_knowledge" else expected)

    def test_base_is_the_paper(self) -> None:
        found = sweeps("base")
        assert {name: sweep.parameter for name, sweep in found.items()} == {
            "sweep_local_epochs": "training.epochs",
            "sweep_distillation_steps": "distillation.epochs",
            "sweep_rho": "methods.kt_pfl.rho",
            "sweep_public_batch": "public.batch",
            "sweep_public_source": "public.source",
            "sweep_alpha": "partition.alpha",
            "sweep_adversaries_digits": "adversaries.share",
            "sweep_adversaries_fashion_mnist": "adversaries.share",
            "sweep_knowledge": "knowledge",
        }
        assert found["sweep_rho"].values == [0.1, 0.3, 0.5, 0.7, 2.0, 5.0]  # the last two are ours
        assert found["sweep_public_source"].values == ["mnist", "emnist:letters", "open_part"]
        for name, standard in {
            "sweep_local_epochs": 20,
            "sweep_distillation_steps": 1,
            "sweep_public_batch": 3000,
        }.items():
            assert standard in found[name].values, name

    @pytest.mark.parametrize("environment", ["quick", "test"])
    def test_an_overlay_sweeps_the_same_setting(self, environment: str) -> None:
        base, overlay = sweeps("base"), sweeps(environment)
        assert all(overlay[name].parameter == base[name].parameter for name in SWEEPS)

    @pytest.mark.parametrize("environment", ["quick", "test"])
    def test_public_batches_fit_into_the_open_part(self, environment: str) -> None:
        sweep = sweeps(environment)["sweep_public_batch"]
        experiment = parsing.parse(sweep.experiment, parsing.merged(load(environment), {})[sweep.experiment])
        assert experiment.public.source == "open_part"
        digits = experiment.private.samples or 1797
        assert max(sweep.values) <= experiment.public.share * digits

    def test_the_tests_need_no_download(self) -> None:
        assert {sweep.experiment for sweep in sweeps("test").values()} == {"hetero_digits", "digits_dirichlet"}
        assert sweeps("test")["sweep_public_source"].values == ["open_part"]


class TestRuntime:
    """What is set for one experiment, beside all others, which inherit and sweep it."""

    @pytest.mark.parametrize(
        ("change", "others", "message"),
        [
            ({"newcomers": 0.2}, "sweep_adversaries_digits", "sweep_adversaries_digits cannot set adversaries.share"),
            (
                {
                    "private": {"source": "npz:a.npz"},
                    "clients": None,
                    "partition": {"scheme": "natural", "minimum": 20},
                },
                "digits_dirichlet",
                "digits_dirichlet.clients is null",
            ),
            (
                {"exchange": "parameters", "architectures": "mlp"},
                "har",
                "har.architectures is cnn1d, mlp, gru, which",
            ),
        ],
    )
    @pytest.mark.parametrize("environment", ["base", "test"])
    def test_is_no_matter_of_sections_that_are_not_run(
        self, environment: str, change: dict[str, Any], others: str, message: str
    ) -> None:
        sections = parsing.merged(load(environment), {"hetero_digits": change})
        parsing.check(sections)
        assert [name for name, _ in parsing.used(["hetero_digits"], sections)] == ["hetero_digits"]
        with pytest.raises(InputError, match=f"^{re.escape(message)}"):
            list(parsing.used([others], sections))


class TestPaper:
    @pytest.mark.parametrize("environment", ["base", "paper", "two_cores", "test"])
    def test_every_column_parses(self, environment: str) -> None:
        sections = parsing.merged(load(environment), {})
        paper = parsing.parse_paper(sections["paper"], sections)
        found = {name: parsing.paper_columns(name, paper, sections) for name in paper.chosen()}
        assert all(found.values())
        seeds = {tuple(settings.seeds) for columns in found.values() for _, _, settings in columns}
        assert seeds == {tuple(paper.seeds)}

    def test_base_is_the_paper(self) -> None:
        sections = parsing.merged(load("base"), {})
        paper = parsing.parse_paper(sections["paper"], sections)
        assert [*paper.chosen()] == [*(f"table{n}" for n in range(1, 7)), *(f"figure{n}" for n in range(2, 6))]
        columns = parsing.paper_columns("table2", paper, sections)
        assert [(settings.clients, settings.participation) for _, _, settings in columns] == 3 * [(20, 1.0), (100, 0.1)]

    def test_two_cores_have_the_papers_clients(self) -> None:
        sections = parsing.merged(load("two_cores"), {})
        paper = parsing.parse_paper(sections["paper"], sections)
        for _, _, column in parsing.paper_columns("table1", paper, sections):
            assert (column.clients, column.private.samples, column.rounds) == (20, 10_000, 20)
            assert (column.training.epochs, column.partition.test_share) == (10, 0.85)

    def test_a_hundred_clients_of_two_cores_train_as_much_as_twenty(self) -> None:
        sections = parsing.merged(load("two_cores"), {})
        paper = parsing.parse_paper(sections["paper"], sections)
        columns = parsing.paper_columns("table2", paper, sections)
        assert {column.clients for _, _, column in columns} == {20, 100}
        for _, _, column in columns:
            samples = (1 - column.partition.test_share) * column.private.samples / column.clients
            assert (samples, column.participation * column.rounds) == (pytest.approx(75), 20)


class TestTunings:
    @pytest.mark.parametrize("environment", ["base", "quick", "results", "test"])
    def test_every_experiment_has_one(self, environment: str) -> None:
        assert set(tunings(environment)) == {f"tune_{experiment}" for experiment in METHODS}

    def test_no_comparison_uses_its_seeds(self) -> None:
        for environment in ("base", "quick", "results", "test"):
            with case(environment):
                found = experiments(environment)
                for name, tune in tunings(environment).items():
                    assert not set(tune.seeds) & set(found[name.removeprefix("tune_")].seeds)

    def test_what_has_nothing_to_choose(self) -> None:
        """Every other method has its space: none is compared with the values of its paper while others are tuned."""
        for experiment in METHODS:
            with case(experiment):
                untuned = set(METHODS[experiment]) - set(tunings("base")[f"tune_{experiment}"].spaces)
                expected = (
                    {"fedavg", "fedper", "fedbn", "fedbabu", "fedrod", "local", "local_5x"}
                    if experiment in HOMO_EXPERIMENTS
                    else {"fedmd", "feddf", "feddf_soft", "local", "local_matched"}
                )
                assert untuned == expected

    def test_a_budget_is_used_where_it_can_be(self) -> None:
        """Lists of a single hyperparameter have as many values as there are trials, as far as there are so many."""
        for experiment in METHODS:
            with case(experiment):
                tune = tunings("base")[f"tune_{experiment}"]
                for method in tune.spaces:
                    space = tune.space(method)
                    ranges = any(isinstance(tried, Range) for tried in space.values())
                    combinations = math.prod(1 if isinstance(tried, Range) else len(tried) for tried in space.values())
                    assert ranges or combinations >= tune.trials or method == "fedrep", method

    @pytest.mark.parametrize("environment", ["quick", "test"])
    def test_an_overlay_searches_the_same_with_less(self, environment: str) -> None:
        base, overlay = tunings("base"), tunings(environment)
        for name, tune in base.items():
            assert overlay[name].spaces == tune.spaces
            assert overlay[name].trials < tune.trials


class TestFiles:
    def test_every_key_of_an_overlay_is_in_base_or_a_setting(self) -> None:
        sections = load("base")
        shared = {name: f"{name.strip('_')}_all" for name in sections if name.startswith("_")}
        settings = leaves(plain(experiments("base")["hetero_digits"]))
        base = parsing.merged({**sections, **{own: {"like": name} for name, own in shared.items()}}, {})
        for file in sorted(CONF.glob("quick/*.yml")) + sorted(CONF.glob("test/*.yml")):
            with case(file):
                text = file.read_text()
                for name, section in yaml.safe_load(text).items():
                    if f"{name}: &" not in text:  # what is only given a name, to stand in sections of this file
                        own = FIRST_RUN[name] if name in FIRST_RUN else leaves(base[shared.get(name, name)])
                        known = [f"{leaf}." for leaf in (*own, *settings)]
                        assert all(any(leaf.startswith(f"{each}.") for leaf in known) for each in leaves(section)), name

    @pytest.mark.parametrize("file", ["parameters.yml", "parameters_hetero.yml", "parameters_homo.yml"])
    def test_every_setting_of_the_shared_blocks_is_documented_where_it_stands(self, file: str) -> None:
        silent, inside = [], ""
        for line in (CONF / "base" / file).read_text().splitlines():
            if re.match(r"\S", line) and not line.startswith("#"):
                inside = line
            elif inside.startswith("_") and (setting := re.match(r" +(\w+): +[^#\s{]", line)) and " #" not in line:
                silent.append(setting[1])
        assert set(silent) <= {"like"}

    def test_base_shows_settings_that_exist(self) -> None:
        known = {*leaves(plain(experiments("base")["hetero_digits"])), "compute.executor"}  # a word replaces the group
        assert set(leaves(parsing.merged(load("base"), {})["hetero_digits"])) <= known

    def test_tracking_has_a_comment_per_setting(self) -> None:
        lines = (CONF / "base" / "tracking.yml").read_text().splitlines()
        assert all("#" in line for line in lines if line)

    def test_nothing_of_a_users_own_is_kept(self) -> None:
        """conf/local is for credentials and private overlays; git ignores all of it but its place."""
        ignored = (CONF.parent / ".gitignore").read_text().splitlines()
        assert "conf/local/**" in ignored


class TestCatalog:
    @pytest.fixture(scope="class")
    def catalog(self) -> DataCatalog:
        return DataCatalog.from_config(load("base", "catalog"))

    def test_every_dataset_of_every_pipeline_is_declared(self, catalog: DataCatalog) -> None:
        datasets = {dataset for pipeline in pipelines().values() for dataset in pipeline.datasets()}
        for dataset in sorted(datasets):
            if dataset.startswith(("params:", "parameters")):
                continue
            assert dataset in catalog, f"{dataset} is in no pattern of the catalog"
            in_memory = isinstance(catalog.get(dataset), MemoryDataset)
            assert in_memory == (re.split(r"[./]", dataset)[-1] in MEMORY), dataset

    def test_no_two_pipelines_write_to_one_place(self, catalog: DataCatalog) -> None:
        places: dict[str, str] = {}
        for pipeline in pipelines().values():
            for dataset in pipeline.all_outputs():
                description = catalog.get(dataset)._describe()
                if "filepath" in description:
                    assert places.setdefault(str(description["filepath"]), dataset) == dataset
        assert len(places) > 20

    def test_a_misspelt_dataset_matches_no_pattern(self, catalog: DataCatalog) -> None:
        assert "hetero_digits/kt_pfl/results" not in catalog
        assert "kt_pfl.checkpoints" not in catalog


class TestPaperPresets:
    """The paper's section against what the paper and its released code state, at all scales of the paper's sizes."""

    @pytest.fixture(scope="class", params=["base", "light"])
    def columns(self, request: pytest.FixtureRequest) -> dict[str, list[tuple[str, str, Experiment]]]:
        sections = parsing.merged(load(request.param), {})
        paper = parsing.parse_paper(sections["paper"], sections)
        return {name: parsing.paper_columns(name, paper, sections) for name in paper.chosen()}

    def test_k_of_topk_pfl(self, columns: dict[str, Any]) -> None:
        found = {
            each.methods["topk_pfl"]["k"] for part in ("table1", "figure2", "figure3") for _, _, each in columns[part]
        }
        assert found == {5}

    def test_samples_per_client_and_split(self, columns: dict[str, Any]) -> None:
        for part, own in columns.items():
            for experiment, _, each in own if "networks" not in part else ():
                with case(part, experiment):
                    assert each.private.samples_per_client == (360 if "cifar" in experiment else 600)
                    assert (each.partition.test_share, each.partition.validation_share) == (0.25, 0)
                    assert (each.rounds, each.training.batch_size, each.distillation.batch_size) == (30, 128, 256)

    def test_distillation_is_the_released_codes(self, columns: dict[str, Any]) -> None:
        for part, loss in {"table1": "plain", **{name: "mean" for name in columns if name == "table1_mean"}}.items():
            found = [each.distillation for _, _, each in columns[part]]
            assert {(each.temperature, each.loss, each.batch_norm) for each in found} == {(10.0, loss, "train")}

    def test_table_2_has_all_labels_in_lognormal_amounts_and_no_public_part(self, columns: dict[str, Any]) -> None:
        for part in ("table2", "figure4"):
            for _, _, each in columns[part]:
                assert (each.partition.scheme, each.partition.sigma, each.public.source) == ("lognormal", 2.0, "none")
        assert {label for _, label, _ in columns["figure4"]} == {"20 clients"}

    def test_rates_of_the_study(self, columns: dict[str, Any]) -> None:
        for part in ("table3", "table4", "table5", "table6"):
            for _, _, each in columns[part]:
                rates = each.training.learning_rate, each.distillation.learning_rate, each.methods["kt_pfl"]["step"]
                assert rates == (0.01, 0.01, 0.01)
        batches = list(dict.fromkeys(each.public.batch for _, _, each in columns["table6"]))
        assert batches == [10, 100, 500, 1000, 3000, 5000]

    def test_light_is_evaluated_every_fifth_round_and_in_the_last_five(self) -> None:
        for name in ("hetero_fashion_mnist", "hetero_cifar", "homo_fashion_mnist", "homo_cifar"):
            each = experiments("light")[name]
            assert (each.evaluate_every, each.evaluate_last) == (5, 5)
