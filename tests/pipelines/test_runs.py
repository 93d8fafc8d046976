"""From settings and data to one run: its federation, what identifies it, and what is said of it meanwhile."""

import logging
from dataclasses import replace
from importlib.util import find_spec
from statistics import fmean
from typing import Any

import pytest
import torch
from kedro.config import OmegaConfigLoader
from project_copy import EXPERIMENT, ROOT

from ktpfl_pipeline.analysis.results import summarise
from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.config import schema
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.core.adversaries import Adversaries
from ktpfl_pipeline.core.client.dp_sgd import Privacy
from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.stacked import StackedExecutor
from ktpfl_pipeline.core.executors.workers import WorkersExecutor
from ktpfl_pipeline.core.federation import LocalTraining
from ktpfl_pipeline.core.metrics import RoundRecord
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.pipeline_registry import HETERO_METHODS
from ktpfl_pipeline.pipelines.download.nodes import load_private, load_public
from ktpfl_pipeline.pipelines.federated_training import runs
from ktpfl_pipeline.pipelines.federated_training.progress import Progress
from ktpfl_pipeline.pipelines.partition.nodes import join, partition_clients
from ktpfl_pipeline.pipelines.public_set.nodes import sample_public_set
from ktpfl_pipeline.pipelines.tune.nodes import settle
from ktpfl_pipeline.settings import CONFIG_LOADER_ARGS


def experiment(**changes: Any) -> Experiment:
    loader = OmegaConfigLoader(conf_source=str(ROOT / "conf"), env="test", **CONFIG_LOADER_ARGS)
    return schema.parse(EXPERIMENT, schema.merged(loader["parameters"], {EXPERIMENT: changes})[EXPERIMENT])


@pytest.fixture(scope="module")
def data() -> FederatedData:
    settings = experiment()
    private = load_private(settings, ROOT)
    public_set = sample_public_set(settings, private, load_public(settings, ROOT, private))
    joined: FederatedData = join(private, public_set, partition_clients(settings, private, public_set))
    return joined


class TestAssemble:
    def test_clients_with_their_data_and_architectures_in_turn(self, data: FederatedData) -> None:
        fed = runs.assemble(experiment(), data, 1)
        assert [client.id for client in fed.clients] == [0, 1, 2, 3, 4]
        assert [client.architecture for client in fed.clients] == ["mlp", "cnn_bn", "mlp", "cnn_bn", "mlp"]
        for client in fed.clients:
            own = data.partitions[1][client.id]
            for split in ("train", "validation", "test"):
                indices = getattr(own, split)
                assert torch.equal(getattr(client, split).images, data.private.images[indices])
                assert torch.equal(getattr(client, split).labels, data.private.labels[indices])

    def test_who_lies_and_what_becomes_of_who_diverges_are_settings(self, data: FederatedData) -> None:
        plain = runs.assemble(experiment(), data, 1)
        assert (plain.on_divergence, plain.liars) == ("stop", [])
        changes = {"on_divergence": "skip", "adversaries": {"share": 0.4, "kind": "scaled"}}
        fed = runs.assemble(experiment(**changes), data, 1)
        assert (fed.on_divergence, fed.adversaries) == ("skip", Adversaries(0.4, "scaled"))
        assert len(fed.liars) == 2

    def test_local_training_is_private_where_it_is_asked_for(self) -> None:
        asked = {"privacy": {"noise_multiplier": 2.0, "delta": 0.001}, "learning_rate": 0.3}
        given = experiment(architectures=["mlp"], training=asked).training
        assert runs.local_training(given) == LocalTraining(1, 32, 0.3, Privacy(2.0, 1.0, 0.001))
        assert runs.local_training(given.model_copy(update={"privacy": None})).privacy is None

    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_seed_decides_partition_public_set_and_streams(self, data: FederatedData, seed: int) -> None:
        fed = runs.assemble(experiment(), data, seed)
        assert fed.seed == seed
        assert torch.equal(fed.public, data.public.images[data.public.indices[seed]])
        assert not torch.equal(data.public.indices[0], data.public.indices[1])

    def test_public_and_private_images_are_disjoint(self, data: FederatedData) -> None:
        for seed in (0, 1):
            owned = [own for client in data.partitions[seed].values() for own in vars(client).values()]
            everything = torch.cat([*owned, data.public.indices[seed]])
            assert torch.equal(everything.sort().values, torch.arange(1797))

    def test_every_setting_arrives(self, data: FederatedData) -> None:
        settings = experiment(
            public={"batch": 33, "transport": "indices"},
            training={"epochs": 7, "batch_size": 9, "learning_rate": 0.125},
            distillation={"epochs": 3, "temperature": 2.5, "batch_norm": "train"},
            compute={"device": "cpu", "dtype": "float64", "prediction_batch": 77, "workers": 3},
        )
        fed = runs.assemble(settings, data, 0)
        assert (fed.public_batch_size, fed.public_transport, fed.classes) == (33, "indices", 10)
        for group in ("training", "distillation", "compute"):
            settled = getattr(settings, group).model_dump(exclude=schema.PLACES | {"stacked"})
            assert vars(getattr(fed, group)) == settled, group
        assert isinstance(fed.executor, WorkersExecutor)
        assert fed.executor.workers == 3
        stacked = runs.assemble(experiment(compute={"device": "cpu", "stacked": 4}), data, 0).executor
        assert isinstance(stacked, StackedExecutor)
        assert stacked.clients == 4
        assert fed.build("mlp")(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


class TestIdentity:
    """Two runs with equal identities are one run; everything that moves a result must move the identity."""

    def of(self, data: FederatedData, method: str = "kt_pfl", seed: int = 0, **changes: Any) -> dict[str, Any]:
        settings = experiment(**changes)
        made = schema.create_method(method, settings.methods[method])
        return runs.identity(EXPERIMENT, method, made, settings, runs.assemble(settings, data, seed), data, seed)

    @pytest.mark.parametrize(
        "changes",
        [
            {"rounds": 3},
            {"participation": 0.5},
            {"evaluate_every": 2},
            {"architectures": ["mlp"]},
            {"public": {"batch": 61}},
            {"training": {"learning_rate": 0.06}},
            {"distillation": {"temperature": 2.0}},
            {"compute": {"dtype": "float64"}},
            {"compute": {"threads": 2}},
            {"compute": {"stacked": 2}},
            {"methods": {"kt_pfl": {"rho": 0.6}}},
        ],
        ids=str,
    )
    def test_every_setting_counts(self, data: FederatedData, changes: dict[str, Any]) -> None:
        assert self.of(data, **changes) != self.of(data)

    def test_seed_and_method_count(self, data: FederatedData) -> None:
        assert self.of(data, seed=1)["seed"] == 1
        assert self.of(data, seed=1)["data"] != self.of(data)["data"]
        assert self.of(data, "fedmd") != self.of(data)

    def test_the_images_and_their_owners_count(self, data: FederatedData) -> None:
        expected = self.of(data)
        brighter = replace(data, private=LabelledDataset(data.private.images.clamp(min=1), data.private.labels))
        assert self.of(brighter)["data"] != expected["data"]
        moved = dict(data.partitions[0])
        moved[0], moved[1] = moved[1], moved[0]
        assert self.of(replace(data, partitions={0: moved}))["data"] != expected["data"]

    def test_what_changes_no_result_does_not_count(self, data: FederatedData) -> None:
        """The other seeds of the experiment, the other methods' hyperparameters, a default written out, workers."""
        expected = self.of(data)
        assert self.of(data, compute={"workers": 7}) == expected
        if find_spec("ray"):
            assert self.of(data, compute={"device": "cpu", "cluster": "local"}) == self.of(
                data, compute={"device": "cpu"}
            )
        assert self.of(data, seeds=[0, 5]) == expected
        assert self.of(data, methods={"fedmd": {}, "kt_pfl_authors": {"rho": 0.1}}) == expected
        assert self.of(data, methods={"kt_pfl": {"update": "eg"}}) == expected

    def test_the_device_that_auto_means(self, data: FederatedData) -> None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        name = torch.cuda.get_device_name() if kind == "cuda" else "cpu"
        assert self.of(data)["compute.device"] == name
        assert self.of(data, compute={"device": kind}) == self.of(data)


class TestProgress:
    """What the log says; the bar needs a terminal."""

    def record(self, t: int = 1, seconds: float = 1.0) -> RoundRecord:
        accuracy = {"after_transfer": [0.25, 0.75]}
        return RoundRecord(round=t, cohort=[0, 1], accuracy=accuracy, seconds={"round": seconds})

    def lines(self, caplog: pytest.LogCaptureFixture, seconds: float, trained: bool = True) -> list[str]:
        """Return what is logged of a run of two rounds with two seeds, each round taking so long."""
        with caplog.at_level(logging.INFO, "ktpfl_pipeline"), Progress("kt_pfl", experiment()) as progress:
            caplog.clear()
            for seed in (0, 1):
                with progress.run(seed) as shown:
                    for t in (1, 2):
                        if trained:
                            shown.phase("train", 1, 5)
                        shown.round(self.record(t, seconds))
        return [message for message in caplog.messages if "starting" not in message.lower()]

    def test_one_line_per_run(self, caplog: pytest.LogCaptureFixture) -> None:
        lines = self.lines(caplog, seconds=1.0)
        assert [line.rpartition(" in ")[0] for line in lines] == [
            "KT-pFL, seed 0: accuracy 50.0 %",
            "KT-pFL, seed 1: accuracy 50.0 %",
        ]

    def test_more_than_an_hour_is_announced_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """Four rounds of half an hour."""
        long = [line for line in self.lines(caplog, seconds=1800.0) if "hours" in line]
        assert long == [
            "KT-pFL will take about 2.0 hours at 1800 s a round; stop and add --env=quick for a run of minutes."
        ]

    def test_less_than_an_hour_is_not(self, caplog: pytest.LogCaptureFixture) -> None:
        assert not [line for line in self.lines(caplog, seconds=890.0) if "hours" in line]

    def test_a_resumed_run_announces_what_is_left(self, caplog: pytest.LogCaptureFixture) -> None:
        """Round 1 comes from the checkpoint, round 2 is trained: three rounds of half an hour, of four."""
        caplog.set_level(logging.INFO, "ktpfl_pipeline")
        with Progress("kt_pfl", experiment()) as progress, progress.run(0) as shown:
            shown.round(self.record(1, 1800.0))
            assert not [message for message in caplog.messages if "hours" in message]
            shown.phase("train", 1, 5)
            shown.round(self.record(2, 1800.0))
        assert [message for message in caplog.messages if "hours" in message] == [
            "KT-pFL will take about 1.5 hours at 1800 s a round; stop and add --env=quick for a run of minutes."
        ]

    def test_what_was_finished_before_takes_no_time(self, caplog: pytest.LogCaptureFixture) -> None:
        lines = self.lines(caplog, seconds=1800.0, trained=False)
        assert lines == [f"KT-pFL, seed {seed}: accuracy 50.0 % (finished before)" for seed in (0, 1)]


def test_a_run_with_adversaries_tells_of_the_others(data: FederatedData) -> None:
    """What is kept are means over the clients that do not lie; the run knows who lied and who was believed."""
    settings = experiment(adversaries={"share": 0.4, "kind": "flipped"}, theorem_samples=0)
    shown = Progress("kt_pfl", settings)
    run = runs.run_seed("mine", "kt_pfl", settings, data, 0, shown)
    assert len(run.adversaries) == 2
    last = run.history[-1].accuracy["after_transfer"]
    others = [value for place, value in enumerate(last) if place not in run.adversaries]
    assert len(others) == 3
    c = torch.tensor(run.coefficients)
    lies = c[[n for n in range(5) if n not in run.adversaries]][:, run.adversaries]
    assert run.trust == pytest.approx(5 * float(lies.mean()))
    assert summarise([run], {}).final["after_transfer"].mean == pytest.approx(
        fmean(fmean(benign(record.accuracy["after_transfer"], run.adversaries)) for record in run.history)
    )


def test_adversaries_beside_methods_that_exchange_more_are_refused_before_anything_is_trained() -> None:
    settings = experiment(adversaries={"share": 0.2})
    with pytest.raises(
        InputError, match=r"hetero_digits\.adversaries\.share is 0\.2; .* fedproto, fml exchange models or"
    ):
        settle(settings, "", EXPERIMENT, HETERO_METHODS)
