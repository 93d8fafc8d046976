"""From settings and data to one run: its federation, what identifies it, and what is said of it meanwhile."""

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
import toy
from project_copy import EXPERIMENT, ROOT, configuration

from ktpfl_pipeline import methods, models, tracking
from ktpfl_pipeline.analysis.results import summarize
from ktpfl_pipeline.analysis.statistics import benign
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.config.schema import Experiment
from ktpfl_pipeline.config.tuned import resolve
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.processes import ProcessesExecutor
from ktpfl_pipeline.core.settings import Adversaries, Budgets, LocalTraining, Privacy, Reliability, Stragglers
from ktpfl_pipeline.core.warnings import start_command
from ktpfl_pipeline.data import sources
from ktpfl_pipeline.data.federated import FederatedData
from ktpfl_pipeline.methods import compared
from ktpfl_pipeline.reports import words
from ktpfl_pipeline.runs import identity as identity_module
from ktpfl_pipeline.runs import run as runs
from ktpfl_pipeline.runs.assembly import assemble
from ktpfl_pipeline.runs.given import label_counts
from ktpfl_pipeline.runs.identity import Job, code_version, identity
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.progress import Progress, expect
from ktpfl_pipeline.runs.run import check_theorem, finished_run, run_seed


def experiment(**changes: Any) -> Experiment:
    return parsing.parse(EXPERIMENT, parsing.merged(configuration(), {EXPERIMENT: changes})[EXPERIMENT])


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return prepare(experiment(), ROOT)


class TestAssemble:
    def test_clients_with_their_data_and_architectures_in_turn(self, data: FederatedData) -> None:
        fed = assemble(experiment(), data, 1)
        assert [client.id for client in fed.clients] == [0, 1, 2, 3, 4]
        assert [client.architecture for client in fed.clients] == ["mlp", "cnn_bn", "mlp", "cnn_bn", "mlp"]
        for client in fed.clients:
            own = data.partitions[1][client.id]
            for split in ("train", "validation", "test"):
                indices = getattr(own, split)
                assert torch.equal(getattr(client, split).inputs, data.private.inputs[indices])
                assert torch.equal(getattr(client, split).labels, data.private.labels[indices])

    def test_all_runs_of_a_seed_share_their_tensors(self, data: FederatedData) -> None:
        one, other = (assemble(experiment(**changes), data, 1) for changes in ({}, {"rounds": 3}))
        assert one.public is other.public
        assert all(a.train is b.train and a.test is b.test for a, b in zip(one.clients, other.clients, strict=True))

    def test_who_lies_and_what_becomes_of_who_diverges_are_settings(self, data: FederatedData) -> None:
        plain = assemble(experiment(), data, 1)
        assert (plain.on_divergence, plain.adversary_ids) == ("stop", [])
        changes = {"on_divergence": "skip", "adversaries": {"share": 0.4, "kind": "scaled"}}
        fed = assemble(experiment(**changes), data, 1)
        assert (fed.on_divergence, fed.adversaries) == ("skip", Adversaries(0.4, "scaled"))
        assert len(fed.adversary_ids) == 2

    def test_local_training_is_private_where_it_is_asked_for(self) -> None:
        asked = {"privacy": {"noise_multiplier": 2.0, "delta": 0.001}, "learning_rate": 0.3}
        given = experiment(architectures=["mlp"], training=asked).training
        assert given == LocalTraining(1, 32, 0.3, privacy=Privacy(2.0, 1.0, 0.001))

    @pytest.mark.parametrize("seed", [0, 1])
    def test_the_seed_decides_partition_public_set_and_streams(self, data: FederatedData, seed: int) -> None:
        fed = assemble(experiment(), data, seed)
        assert fed.seed == seed
        assert torch.equal(fed.public, data.public.inputs[data.public.indices[seed]])
        assert not torch.equal(data.public.indices[0], data.public.indices[1])

    def test_public_and_private_images_are_disjoint(self, data: FederatedData) -> None:
        for seed in (0, 1):
            owned = [own for client in data.partitions[seed].values() for own in client]
            everything = torch.cat([*owned, data.public.indices[seed]])
            assert torch.equal(everything.sort().values, torch.arange(1797))

    def test_every_setting_arrives(self, data: FederatedData) -> None:
        settings = experiment(
            public={"batch": 33, "transport": "indices"},
            training={"epochs": 7, "batch_size": 9, "learning_rate": 0.125, "optimizer": "adam", "label_smoothing": 0.2}
            | {"schedule": {"kind": "cosine", "floor": 0.1}, "augmentation": ["flip", {"crop": {"padding": 2}}]},
            distillation={"epochs": 3, "temperature": 2.5, "batch_norm": "train"},
            compute={"device": "cpu", "dtype": "float64", "prediction_batch": 77, "executor": {"processes": 3}},
        )
        fed = assemble(settings, data, 0)
        assert (fed.public_batch_size, fed.public_transport, fed.classes) == (33, "indices", 10)
        for group in ("training", "distillation", "compute"):
            assert getattr(fed, group) == getattr(settings, group), group
        assert fed.training.augmentation == ({"flip": {"p": 0.5}}, {"crop": {"padding": 2}})
        assert fed.rounds == settings.rounds
        assert isinstance(fed.executor, ProcessesExecutor)
        assert fed.executor.workers == 3
        assert fed.build("mlp")(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


READS = {
    "at_import": "float((Path(__file__).parent / 'net.json').read_text())",
    "at_import_of_a_variable": "float(os.getenv('KTPFL_TEST_SCALE', '1'))",
    "when_built": "json.loads((Path(__file__).parent / 'net.json').read_text())",
    "when_built_of_a_variable": "float(os.environ['KTPFL_TEST_SCALE'])",
    "when_run": "float(np.genfromtxt(Path(__file__).parent / 'net.json'))",
}
READING = """
import json, os
from pathlib import Path
import numpy as np
from torch import nn

FACTOR = {at_import} * {at_import_of_a_variable}

class Net(nn.Module):
    def __init__(self, classes, dropout):
        super().__init__()
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(784, classes)

    def forward(self, x):
        return self.head(self.dropout(x.flatten(1))) * (FACTOR + {when_run})

def net(shape, classes):
    return Net(classes, {when_built} * {when_built_of_a_variable})
"""


class TestIdentity:
    """Two runs with equal identities are one run; everything that moves a result must move the identity."""

    def of(self, data: FederatedData, method: str = "kt_pfl", seed: int = 0, **changes: Any) -> dict[str, Any]:
        settings = experiment(**changes)
        return identity(Job(EXPERIMENT, method, settings, data), seed)

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
            {"knowledge": {"encoding": "uint8"}},
            {"compute": {"dtype": "float64"}},
            {"compute": {"threads": 2}},
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
        brighter = replace(data, private=LabeledDataset(data.private.inputs.clamp(min=1), data.private.labels))
        assert self.of(brighter)["data"] != expected["data"]
        moved = dict(data.partitions[0])
        moved[0], moved[1] = moved[1], moved[0]
        assert self.of(replace(data, partitions={0: moved}))["data"] != expected["data"]

    def test_what_changes_no_result_does_not_count(self, data: FederatedData) -> None:
        """The other seeds of the experiment, the other methods' hyperparameters, a default written out, workers."""
        expected = self.of(data)
        assert self.of(data, compute={"executor": {"processes": 7}}) == expected
        if find_spec("ray"):
            assert self.of(data, compute={"device": "cpu", "executor": "ray"}) == self.of(
                data, compute={"device": "cpu"}
            )
        assert self.of(data, seeds=[0, 5]) == expected
        assert self.of(data, methods={"fedmd": {}, "kt_pfl_authors": {"rho": 0.1}}) == expected
        assert self.of(data, methods={"kt_pfl": {"update": "eg"}}) == expected
        lean = {"knowledge": {"cache": 2}}  # of a method that sends no predictions
        assert self.of(data, "local", **lean) == self.of(data, "local")
        public = {"public": {"batch": 61}, "distillation": {"epochs": 3}}  # local-only training uses neither
        assert self.of(data, "local", **public) == self.of(data, "local")
        assert self.of(data, "local_matched", **public) != self.of(data, "local_matched")

    def test_the_device_that_auto_means(self, data: FederatedData) -> None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        name = torch.cuda.get_device_name() if kind == "cuda" else "cpu"
        assert self.of(data)["compute.device"] == name
        assert self.of(data, compute={"device": kind}) == self.of(data)

    def test_what_makes_the_inputs_of_the_samples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fingerprint of the data is of the samples before they are skewed and standardized."""
        read, files = identity_module._meaning, set()
        monkeypatch.setattr(identity_module, "_meaning", lambda path, at: files.add(path.name) or read(path, at))
        code_version(methods.find("kt_pfl").kind, experiment())
        assert {"feature_skew.py", "standardization.py", "federated.py"} <= files

    @pytest.mark.parametrize("read", READS)
    def test_what_a_builder_reads_and_makes(
        self, read: str, data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files and environment variables, at import, while it is built and in the forward pass; unread ones do not."""
        package = tmp_path / "reading_nets"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "net.json").write_text("0.1")
        (package / "other.json").write_text("0.1")
        (package / "nets.py").write_text(READING.format(**dict.fromkeys(READS, "0.1") | {read: READS[read]}))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("KTPFL_TEST_SCALE", "0.1")
        for name in [name for name in sys.modules if name.startswith("reading_nets")]:
            monkeypatch.delitem(sys.modules, name)

        def found() -> dict[str, Any]:
            return self.of(data, architectures=["reading_nets.nets:net"])

        then = found()
        (package / "other.json").write_text("0.7")
        assert found() == then
        if "KTPFL" in READS[read]:
            monkeypatch.setenv("KTPFL_TEST_SCALE", "0.7")
        else:
            (package / "net.json").write_text("0.7")
        now = found()
        assert {name for name in now if now[name] != then[name]} == {"models"}

    @pytest.mark.parametrize("read", ["at_import", "when_made"])
    def test_what_a_method_reads(
        self, read: str, data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "size.txt").write_text("1")
        (tmp_path / f"reading_{read}.py").write_text(
            "from pathlib import Path\nfrom ktpfl_pipeline.methods.local import Local\n"
            "def size(): return float((Path(__file__).parent / 'size.txt').read_text())\n"
            f"SIZE = {'size()' if read == 'at_import' else '1'}\n"
            "class Mine(Local):\n    title = 'Mine'\n    def __post_init__(self): "
            f"{'size()' if read == 'when_made' else '...'}\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        then = self.of(data, method=f"reading_{read}:Mine")
        assert self.of(data, method=f"reading_{read}:Mine") == then
        (tmp_path / "size.txt").write_text("2")
        now = self.of(data, method=f"reading_{read}:Mine")
        assert {name for name in now if now[name] != then[name]} == {"reads"}

    def test_the_source_of_a_method_model_and_data_source_outside_this_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what they import of their own package, and not what they do not."""
        package = tmp_path / "outside"
        package.mkdir()
        files = {
            "__init__": "",
            "alone": "from outside import more\nfrom ktpfl_pipeline.methods.local import Local\n"
            "class Alone(Local):\n    title = 'Alone'\n",
            "more": "from .deeper import NUMBER\n",
            "deeper": "NUMBER = 1\n",
            "nets": "import importlib\nfrom helping_nets import block\ndef net(shape, classes):\n"
            "    from outside.inner import INNER\n    importlib.import_module('outside.named')\n",
            "inner": "import no_such_library.nets\nINNER = 1\n",
            "named": "",
            "images": "def load(argument, folder): ...\n",
            "unused": "",
        }
        for name, text in files.items():
            (package / f"{name}.py").write_text(text)
        helper = tmp_path / "helping_nets.py"
        helper.write_text("def block(): ...\n")
        monkeypatch.syspath_prepend(tmp_path)
        kind = methods.find("outside.alone:Alone").kind
        models.find("outside.nets:net")
        sources.find("outside.images:load")
        importlib.import_module("outside.unused")
        settings = experiment(
            architectures=["mlp", "outside.nets:net"], private={"source": "outside.images:load:a.csv"}
        )
        found = {}
        for name in ["nothing", *files]:
            if name != "nothing":
                (package / f"{name}.py").write_text(files[name] + "another = 1\n")
            found[name] = code_version(kind, settings)
        versions = list(found.values())
        changed = [name for name, before, after in zip(files, versions, versions[1:], strict=False) if before != after]
        assert changed == ["__init__", "alone", "more", "deeper", "nets", "inner", "named", "images"]
        helper.write_text("def block(): return 1\n")
        assert code_version(kind, settings) != versions[-1], "a module next to the package counts"
        helper.write_text("def block(): ...\n")
        (package / "alone.py").write_text(f'"""A docstring."""\n\n# A comment.\n{files["alone"]}another = 1\n')
        assert code_version(kind, settings) == versions[-1], "comments and docstrings do not count"


def test_a_run_with_adversaries_tells_of_the_others(
    data: FederatedData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept and logged are means over the clients that do not lie; the run knows who lied and was believed."""
    caplog.set_level(logging.INFO, "ktpfl_pipeline")
    tracked: list[Any] = []
    monkeypatch.setattr(tracking, "current", tracking.Tracker)
    monkeypatch.setattr(tracking.TrackedRun, "round", lambda self, record: tracked.append(record))
    settings = experiment(adversaries={"share": 0.4, "kind": "reversed"}, theorem_samples=0)
    run = run_seed(Job("mine", "kt_pfl", settings, data), 0, Progress("kt_pfl", settings))
    assert len(run.adversaries) == 2
    last = run.history[-1].accuracy["after_transfer"]
    others = [value for place, value in enumerate(last) if place not in run.adversaries]
    assert len(others) == 3
    c = torch.tensor(run.coefficients)
    lies = c[[n for n in range(5) if n not in run.adversaries]][:, run.adversaries]
    assert run.trust == pytest.approx(5 * float(lies.mean()))
    final = fmean(fmean(benign(record.accuracy["after_transfer"], run.adversaries)) for record in run.history)
    assert summarize([run], {}).final["after_transfer"].mean == pytest.approx(final)
    assert f"KT-pFL, seed 0: accuracy {100 * final:.1f} % in" in caplog.text
    assert [record.loss["test"] for record in tracked] == [
        benign(record.loss["test"], run.adversaries) for record in run.history
    ]
    assert all(len(record.loss["train"]) == 5 for record in tracked)


def test_a_run_has_its_folder_for_itself_from_beginning_to_end(
    data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Path, bool]] = []

    @contextmanager
    def alone(folder: Path, waiting: Any) -> Iterator[None]:
        seen.append((folder, (folder / "checkpoint.pt").exists()))
        yield
        seen.append((folder, (folder / "checkpoint.pt").exists()))

    monkeypatch.setattr(runs, "alone", alone)
    monkeypatch.setattr(runs, "checkpoints_of", lambda *_: tmp_path)
    settings = experiment(theorem_samples=0)
    run_seed(Job("mine", "local", settings, data), 0, Progress("local", settings))
    assert seen == [(tmp_path, False), (tmp_path, True)]


def test_newcomers_are_held_out_of_everything_but_what_is_told_of_them(data: FederatedData) -> None:
    settings = experiment(newcomers=0.4, theorem_samples=0, evaluation={"adapt_epochs": [0, "E"]})
    run = run_seed(Job("mine", "kt_pfl", settings, data), 0, Progress("kt_pfl", settings))
    found = run.newcomers
    assert found is not None
    assert sorted([*run.ids, *found.clients]) == list(range(5))
    assert {n for record in run.history for n in record.cohort} == set(run.ids)
    assert (len(found.clients), len(run.architectures), len(run.label_counts), len(run.coefficients or [])) == (
        2,
        3,
        3,
        3,
    )
    counts = data.seeds[0].label_counts
    assert run.label_counts == counts[run.ids].tolist()
    assert {e: len(values) for e, values in found.accuracy.items()} == {0: 2, 1: 2}
    assert found.there[0] == run.history[-1].accuracy["after_transfer"]
    again = run_seed(Job("mine", "kt_pfl", settings, data), 0, Progress("kt_pfl", settings))
    assert (again.newcomers, again.history[-1].accuracy) == (found, run.history[-1].accuracy)


def test_how_far_clients_can_be_relied_on_is_a_setting_and_told(data: FederatedData) -> None:
    assert assemble(experiment(), data, 0).reliability == Reliability()
    changes = {"availability": 0.5, "stragglers": {"share": 0.4}, "budgets": {"share": 0.2, "epochs": 0.5}}
    settings = experiment(**changes)
    assert assemble(settings, data, 0).reliability == Reliability(0.5, Stragglers(0.4, 1), Budgets(0.2, 0.5))
    assert words.unreliable(settings.settings()) == [
        "a sampled client is available with probability 0.5",
        "40 % of the clients are 1 round late",
        "20 % of the clients have limited compute: 50 % of the local epochs",
    ]
    assert words.unreliable(experiment().settings()) == []


PRIVATE: dict[str, Any] = {"architectures": ["mlp"], "training": {"privacy": {"noise_multiplier": 1.0}}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"newcomers": 0.05}, "which is 0 of 5 clients; take a share"),
        ({"newcomers": 0.2, "adversaries": {"share": 0.4}}, "Set .*adversaries.share to 0"),
        ({**PRIVATE, "newcomers": 0.2}, "Set .*training.privacy to null"),
    ],
)
def test_newcomers_that_cannot_be_or_be_judged_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        experiment(**changes)


def test_adversaries_beside_methods_that_exchange_more_are_refused_before_anything_is_trained() -> None:
    settings = experiment(adversaries={"share": 0.2})
    with pytest.raises(
        InputError, match=r"hetero_digits\.adversaries\.share is 0\.2, which excludes .* fedproto, .*fml, .*: malicious"
    ):
        resolve(settings, "", name=EXPERIMENT, methods=compared(one_architecture=False))


@pytest.mark.parametrize(("name", "mixes"), [("kt_pfl_params", True), ("apple", False)])
def test_weights_that_are_no_mixture_are_neither_attention_nor_a_mixture_of_theorem_1(name: str, mixes: bool) -> None:
    """APPLE's rows sum to more than one after some rounds."""
    fed, method = toy.alike(), methods.create(name)
    done = engine.run(method, fed, engine.Schedule(rounds=5))
    check = check_theorem(method, done, fed, 20)
    found = finished_run(name, fed, done, label_counts(fed), experiment="", partition="", run_id="", key="")
    assert check is not None
    assert ("learned" in check.test, bool(found.attention)) == (mixes, mixes)
    assert found.coefficients == done.coefficients[-1].tolist()


def test_that_clients_were_never_trained_is_said_once_for_all_methods(
    data: FederatedData, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "current", tracking.Tracker)
    settings = experiment(participation=0.4, rounds=1, theorem_samples=0)
    expect(2)
    start_command()
    for method in ("local", "fedmd"):
        run_seed(Job("mine", method, settings, data), 0, Progress(method, settings))
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith("mine: only 40 % of the clients were in any round's cohort, so others have a model that was")
