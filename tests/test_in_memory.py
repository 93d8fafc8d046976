"""Federations in memory: the pipelines' own, in one call."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from bad_data import IMAGES, LABELS, configuration
from project_copy import EXPERIMENT, ROOT
from rich.console import Console
from torch import Tensor

from ktpfl_pipeline import models
from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.settings import LocalTraining
from ktpfl_pipeline.in_memory import compare, federation, run
from ktpfl_pipeline.methods import create
from ktpfl_pipeline.methods.kt_pfl import KTpFL
from ktpfl_pipeline.methods.local import Local
from ktpfl_pipeline.reports import figures
from ktpfl_pipeline.runs.identity import Job
from ktpfl_pipeline.runs.preparation import prepare
from ktpfl_pipeline.runs.progress import Progress
from ktpfl_pipeline.runs.run import run_seed

pytestmark = pytest.mark.usefixtures("blank_figures")
GROUPS = ("public", "image", "training", "distillation", "compute")


@pytest.fixture(scope="module")
def fed() -> Federation:
    return configured(seed=1)


def configured(seed: int, **changes: Any) -> Federation:
    """Return the federation of conf/test."""
    section = configuration()[EXPERIMENT]
    settings = {group: section[group] for group in GROUPS} | changes
    return federation("digits", section["clients"], section["architectures"], section["partition"], seed, **settings)


def test_equals_a_run_of_the_pipelines(fed: Federation) -> None:
    """Data, draws and so every number, bit for bit."""
    experiment = parsing.parse(EXPERIMENT, configuration()[EXPERIMENT])
    job = Job(EXPERIMENT, "kt_pfl", experiment, prepare(experiment, ROOT))
    with Progress("", experiment) as progress:
        theirs = run_seed(job, 1, progress)

    result = run(create("kt_pfl", experiment.methods["kt_pfl"]), fed, rounds=experiment.rounds)
    (ours,) = result.runs
    for part in ("method", "seed", "architectures", "label_counts", "coefficients", "matrices", "attention"):
        assert getattr(ours, part) == getattr(theirs, part), part
    assert [(record.accuracy, record.loss, record.traffic) for record in ours.history] == [
        (record.accuracy, record.loss, record.traffic) for record in theirs.history
    ]
    assert torch.equal(fed.public, job.data.seeds[1].public)


@pytest.mark.parametrize(
    ("method", "settings", "told"),
    [
        ("feddf", {"adversaries": {"share": 0.4}}, "adversaries.share is 0.4, which excludes FedDF"),
        ("scarlet", {"knowledge": {"cache": 2}}, "knowledge.cache is 2, which excludes SCARLET"),
        ("pfedme", {"training": {"optimizer": "adam"}}, "training.optimizer is adam, which excludes pFedMe"),
    ],
)
def test_methods_that_do_not_go_with_a_federation_are_refused(method: str, settings: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        run(method, federation("digits", 5, ["mlp"], **settings))


def test_figures_draw_the_result(fed: Federation) -> None:
    results = [run(name, fed, rounds=1) for name in ("kt_pfl", "local")]
    for drawn in (
        figures.accuracy_curves(results),
        figures.accuracy_curves(results[0]),
        figures.client_accuracy(results[0]),
        figures.matrix_over_rounds(results[0]),
        figures.labels_per_client(results[0].runs[0].label_counts, "Labels"),
    ):
        assert drawn.axes


def test_several_seeds_are_one_result(fed: Federation) -> None:
    assert run("local", fed, configured(seed=2), rounds=1).seeds == [1, 2]


def test_federations_that_differ_in_more_than_the_seed_have_no_common_mean(fed: Federation) -> None:
    other = configured(seed=2, public={"batch": 61})
    for call in (lambda: run("local", fed, other, rounds=1), lambda: compare(["local"], fed, other, rounds=1)):
        with pytest.raises(InputError, match=r"other settings \(public\.batch=60, now 61\)"):
            call()


def test_methods_of_a_comparison_may_be_any_iterable(fed: Federation) -> None:
    assert [each.method for each in compare(iter(["fd", "local"]), fed, rounds=1).results] == ["fd", "local"]


def test_a_federation_without_public_images_runs_what_needs_none() -> None:
    fed = federation("digits", 5, ["mlp"], training={"epochs": 1}, public={"source": "none"}, private={"samples": 200})
    assert run("local", fed, rounds=1).rounds == 1
    with pytest.raises(InputError, match="public samples are needed"):
        run("kt_pfl", fed, rounds=1)


@dataclass(frozen=True)
class Mine(Local):
    title = "Mine"


@pytest.mark.parametrize(
    ("method", "name", "title"),
    [
        ("local", "local", "Local-only"),
        (KTpFL(rho=1.0), "kt_pfl", "KT-pFL"),
        (create("kt_pfl_authors"), "kt_pfl_authors", "KT-pFL (authors' code)"),
        (Mine(), "Mine", "Mine"),
    ],
    ids=["by name", "of the registry", "a preset", "of one's own"],
)
def test_a_method_is_called_by_its_name_in_the_registry_or_its_title(
    fed: Federation, method: object, name: str, title: str
) -> None:
    result = run(method, fed, rounds=1)
    assert (result.method, result.title) == (name, title)


@dataclass(frozen=True)
class Untitled(Local):
    pass


@pytest.mark.parametrize(
    ("method", "others", "rounds", "told"),
    [
        (Local, [], 1, "The method is the class Local; give an object of it, Local()."),
        (3, [], 1, "The method is 3; give a name, such as 'kt_pfl', or an object"),
        (Untitled(), [], 1, 'Untitled has no title: write title = "..." in the class'),
        (
            "local",
            [2],
            1,
            "A federation is 2; give what federation(...) returns, and the number of rounds by its name, ",
        ),
        ("local", ["digits"], 1, "A federation is 'digits'; give what federation(...) returns."),
        ("local", [["digits"]], 1, "The federations are in a list; give each by itself"),
        ("local", [...], 1, "The federations have the seeds [1, 1]; give each another one, federation(..., seed=1)."),
        ("local", [], 0, "rounds is 0; it must be an integer from 1"),
        ("local", [], -1, "rounds is -1; it must be"),
        ("local", [], 2.5, "rounds is 2.5; it must be"),
        ("local", [], True, "rounds is true; it must be"),
    ],
)
def test_arguments_of_another_kind(fed: Federation, method: Any, others: list[Any], rounds: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        run(method, fed, *(fed if other is ... else other for other in others), rounds=rounds)
    assert str(error.value).startswith(told)


def test_federations_made_by_hand_with_different_numbers_of_clients(fed: Federation) -> None:
    other = replace(fed, clients=fed.clients[1:], seed=fed.seed + 1)
    with pytest.raises(InputError, match=r"different numbers of clients \(\d+, \d+\): give federations"):
        run("local", replace(fed), other, rounds=1)


def test_no_federation() -> None:
    with pytest.raises(InputError, match="There is no federation to run the method on: give one"):
        run("local")


@pytest.mark.parametrize("given", ["mlp", ["mlp"], ("mlp",), {"mlp": 5}], ids=str)
def test_architectures_of_any_form(given: Any) -> None:
    assert {client.architecture for client in federation("digits", 5, given).clients} == {"mlp"}


@pytest.mark.parametrize("clients", [1, 3, 50])
def test_any_number_of_clients_with_the_defaults(clients: int) -> None:
    fed = federation("digits", clients)
    assert len(fed.clients) == clients
    assert all(len(client.train) for client in fed.clients)


def test_own_images_and_their_folder(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=IMAGES, labels=LABELS)
    fed = federation(
        "npz:mine.npz", 4, partition={"scheme": "dirichlet", "alpha": 5.0}, folder=tmp_path, public={"batch": 9}
    )
    private = sum(len(each.train) + len(each.validation) + len(each.test) for each in fed.clients)
    assert (len(fed.clients), fed.public_batch_size, private) == (4, 9, 280)
    assert fed.public.shape == (120, 1, 28, 28)


def pairs() -> torch.utils.data.TensorDataset:
    return torch.utils.data.TensorDataset(torch.from_numpy(IMAGES).unsqueeze(1), torch.from_numpy(LABELS))


@pytest.mark.parametrize(
    "data",
    [
        (IMAGES, LABELS),
        [torch.from_numpy(IMAGES).unsqueeze(1), torch.from_numpy(LABELS)],
        {"images": IMAGES, "labels": LABELS},
        LabeledDataset(torch.from_numpy(IMAGES).unsqueeze(1), torch.from_numpy(LABELS)),
        pairs(),
    ],
    ids=["arrays", "tensors", "a mapping", "a labeled dataset", "a dataset of torch"],
)
def test_samples_may_be_given_in_python(data: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=IMAGES, labels=LABELS)
    given: dict[str, Any] = {"partition": "iid", "architectures": "mlp", "public": {"batch": 9}}
    fed, expected = federation(data, 4, **given), federation("npz:mine.npz", 4, folder=tmp_path, image=None, **given)
    assert torch.equal(fed.public, expected.public)
    assert all(
        torch.equal(one.train.inputs, other.train.inputs)
        for one, other in zip(fed.clients, expected.clients, strict=True)
    )


def test_features_with_owners_may_be_given_in_python() -> None:
    owners = np.array(["anne", "bill"])[np.arange(len(LABELS)) % 2]
    data = {"features": torch.randn(len(LABELS), 5), "labels": LABELS, "clients": owners}
    fed = federation(data, None, "mlp", "natural", public={"source": "none"})
    assert [client.name for client in fed.clients] == ["anne", "bill"]


def test_groups_of_samples_that_are_given_stay_together() -> None:
    """Each feature is the number of a group, of four samples."""
    groups = torch.arange(280) // 4
    data = LabeledDataset(groups[:, None].float(), torch.arange(280) % 2, groups=groups)
    fed = federation(data, 2, "mlp", "iid", public={"source": "none"})
    for client in fed.clients:
        sides = [set(part.inputs.flatten().tolist()) for part in (client.train, client.validation, client.test)]
        assert sum(map(len, sides)) == len(set.union(*sides)), "standardized, they still are one number per group"


def test_numbers_of_numpy_are_settings() -> None:
    size, lr = np.arange(5)[4], np.float64(0.1)
    fed = federation(
        "digits", size, "mlp", "iid", np.int64(3), public={"source": "none"}, training={"learning_rate": lr}
    )
    assert (fed.seed, type(fed.seed), len(fed.clients), fed.training.learning_rate) == (3, int, 4, 0.1)
    assert run("local", fed, rounds=np.int64(1)).rounds == 1


def test_what_looks_wrong_in_the_data_is_kept_by_the_run(caplog: pytest.LogCaptureFixture) -> None:
    data = {"features": torch.randn(280, 12, 3), "labels": np.array(["No", "no", "yes", "maybe"])[np.arange(280) % 4]}
    fed = federation(data, 2, "mlp", "iid", public={"source": "none"})
    found = run("local", fed, rounds=1).runs[0].warnings
    assert [each.kind for each in found] == ["Names alike", "Axes"]
    assert found[1].text.startswith("python: samples are 12 channels of 3 steps.")
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        each.text for each in found
    ]


def test_errors_name_no_file_of_ones_own_arrays() -> None:
    features = torch.randn(280, 5)
    features[7, 1] = torch.inf
    with pytest.raises(InputError, match=r"^the array 'features' in the given data has inf in row 7 "):
        federation({"features": features, "labels": np.arange(280) % 4}, 2, "mlp", "iid", public={"source": "none"})


@pytest.mark.parametrize("data", [3, [IMAGES], (IMAGES, LABELS, LABELS)], ids=["a number", "one", "three"])
def test_data_of_another_form_are_refused(data: Any) -> None:
    with pytest.raises(InputError, match="give a source, inputs with labels, a mapping of arrays, or a dataset"):
        federation(data)


class Samples(torch.utils.data.Dataset[Any]):
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> Any:
        return self.samples[place]


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield torch.zeros(3), 0


class LongStream(Stream):
    def __len__(self) -> int:
        return 1


class Noisy(Samples):
    def __getitem__(self, place: int) -> Any:
        inputs, label = self.samples[place]
        return inputs + np.random.default_rng().normal(size=3), label


TABLE = pd.DataFrame({"age": np.arange(60) * 7 % 60, "pulse": range(60)})
COUNTS = np.arange(300).reshape(60, 5) % 40
VALUES = np.random.default_rng(0).normal(size=(60, 3))
MARKED = LabeledDataset(torch.zeros(6, 3), torch.arange(6), test=torch.arange(6) < 3)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (Samples([(np.zeros(3), 0.0), (np.zeros(3), 0.7)]), r"the given data has the label 0\.7 in row 1 "),
        (Samples([(np.zeros(3), np.eye(2)[0])]), r"has a label of shape \(2,\): give each sample one class"),
        (Samples([(np.zeros(3), 0), (np.zeros(4), 1)]), r"inputs of the shapes \(3,\), \(4,\): bring them to one"),
        (Samples([]), "has no samples, or samples that are not pairs"),
        (Samples([{"x": 1}]), "has no samples, or samples that are not pairs"),
        (Stream(), "is a stream, or has no length"),
        (LongStream(), "is a stream, or has no length"),
        (Noisy([(np.zeros(3), 0), (np.ones(3), 1)]), "gives sample 0 another input when it is read again"),
        ((np.ma.masked_greater(VALUES, 1), np.arange(60) % 3), "The inputs have masked values: fill them"),
        ((TABLE.assign(day=pd.Timestamp("2026-01-01")), TABLE["age"] % 2), "The inputs have Timestamp.*: give numbers"),
        ((TABLE.assign(city="Rome"), TABLE["age"] % 2), "The inputs have 'Rome' and 0: give only numbers"),
        ((VALUES, ["a", None] * 30), "The labels have None, a NoneType: give numbers, or names"),
        (((row for row in VALUES), np.arange(60) % 3), "The inputs have <generator .*, a generator: give numbers"),
        ([(VALUES, np.zeros(60)), (VALUES[:9], np.zeros(9))], "The inputs have several lengths: .* 'clients'"),
        ((torch.zeros(6, 32, 32, 3, dtype=torch.uint8), np.arange(6)), r"give images\.permute\(0, 3, 1, 2\)"),
        ((VALUES > 0, np.arange(60)), r"'features' in the given data is bool .*: save \.astype\('float32'\)"),
        ((np.zeros((6, 8, 8), int), np.arange(6)), "'images' in the given data is int64 and must be uint8"),
        (MARKED, "has an array 'test' but no array 'clients'"),
        ((TABLE.sort_values("age"), TABLE["age"] % 2), r"rows of the inputs in another order, .*: give labels\.loc"),
        ((COUNTS, np.arange(60) % 3), r"may be a table of integers or texts.* inputs\.astype\('float32'\)"),
        ((COUNTS.astype("uint8"), np.arange(60) % 3), "may be a table of integers or texts"),
        (LabeledDataset(torch.from_numpy(COUNTS), torch.arange(60) % 3), "may be a table of integers or texts"),
    ],
)
def test_samples_that_would_be_read_as_others_are_refused(data: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        federation(data, 2, "mlp", "iid", public={"source": "none"})


@pytest.mark.parametrize(
    "data",
    [
        Samples([(torch.tensor(row, requires_grad=True), "abc"[n % 3]) for n, row in enumerate(VALUES)]),
        (torch.from_numpy(VALUES).bfloat16(), np.arange(60) % 3),
        (pd.DataFrame({"age": range(60), "pulse": range(60, 120)}), pd.Series(np.arange(60) % 3)),
        (pd.DataFrame({"age": VALUES[:, 0], "ill": VALUES[:, 1] > 0}), pd.Series(["a", "b", "c"] * 20)),
        (pd.DataFrame({"age": range(60)}, dtype="Int64"), pd.Series(["a", "b", "c"] * 20, dtype="category")),
        (torch.from_numpy(VALUES).to_sparse(), np.array([0, 1, 2] * 20, dtype=object)),
    ],
    ids=["names of classes", "bfloat16", "a table of integers", "objects", "pandas' own types", "a sparse tensor"],
)
def test_features_may_come_in_any_form(data: Any) -> None:
    fed = federation(data, 2, "mlp", "iid", public={"source": "none"})
    assert (fed.classes, fed.clients[0].train.inputs.dtype) == (3, torch.float32)


def test_integers_are_texts_if_their_name_or_all_architectures_say_so() -> None:
    labels, others = np.arange(60) % 3, {"clients": 2, "partition": "iid", "public": {"source": "none"}}
    made = federation((COUNTS, labels), architectures=("text_cnn", "fasttext"), **others)
    assert made.clients[0].train.kind.name == "tokens"
    with pytest.raises(InputError, match="mlp takes numbers; these are tokens"):
        federation({"tokens": COUNTS, "labels": labels}, architectures=("text_cnn", "mlp"), **others)


def test_the_vocabulary_of_given_tokens_is_kept() -> None:
    words = ("[PAD]", "[UNK]", *map(str, range(2, 50)))
    ids = torch.arange(300).view(60, 5) % 40
    data = LabeledDataset(ids, torch.arange(60) % 3, vocabulary=Vocabulary(50, 0, words))
    fed = federation(data, 2, "text_cnn", "iid", public={"source": "none"})
    assert fed.origin is not None
    known = fed.origin.data.private.vocabulary
    assert known is not None
    assert (known.size, known.padding, known.words) == (50, 0, words)


def test_what_a_notebook_shows_is_short(fed: Federation) -> None:
    shown = [repr(each) for each in (fed, fed.clients[0], run("local", fed, rounds=1))]
    assert shown[0] == f"Federation(5 clients with mlp, cnn_bn, {len(fed.public)} public samples, seed 1)"
    assert "train=LabeledDataset(inputs (" in shown[1]
    assert shown[2].startswith("MethodResult(Local-only, 1 round, seeds [1], after_transfer 0.")
    assert all(len(text) < 500 for text in shown)


class TestComparisons:
    @pytest.mark.parametrize(
        ("part", "told"),
        [
            ({"labels": torch.tensor([0, 1, 9])}, "test labels that are wrong: give 3 class numbers in int64, 0 to 2"),
            ({"labels": torch.tensor([0.0, 1.0, 2.0])}, "test labels that are wrong"),
            ({"labels": torch.tensor([0, 1])}, "test labels that are wrong"),
            ({"inputs": torch.zeros(3, 4)}, r"that are features of shape \(4,\), and the first client features of"),
            ({"inputs": torch.tensor([[1.0] * 5, [2.0] * 5, [torch.nan] * 5])}, "test samples, has nan in row 2"),
        ],
        ids=["no class", "floats", "fewer", "another shape", "not finite"],
    )
    def test_samples_of_another_form_in_a_federation_made_by_hand(self, part: dict[str, Tensor], told: str) -> None:
        data = torch.randn(60, 5), torch.arange(60) % 3
        made = federation(data, 2, "mlp", "iid", public={"source": "none"})
        one, other = made.clients
        test = replace(other.test.take(torch.arange(3)), **part)
        with pytest.raises(InputError, match=f"^Client 1.* {told}"):
            run("local", replace(made, clients=(one, replace(other, test=test))), rounds=1)

    def test_public_samples_of_another_form_in_a_federation_made_by_hand(self, fed: Federation) -> None:
        with pytest.raises(InputError, match=r"^The federation has public samples that are features of shape"):
            run("fedmd", replace(fed, public=fed.public.flatten(1).float()), rounds=1)

    def test_a_group_of_settings_is_no_mapping(self, fed: Federation) -> None:
        with pytest.raises(InputError, match=r"^training is \{'epochs': 1\}; .* with dataclasses\.replace"):
            run("local", replace(fed, training={"epochs": 1}), rounds=1)  # type: ignore[arg-type]

    def test_a_federation_made_by_hand_is_compared(self, fed: Federation) -> None:
        by_hand = replace(fed, origin=None, training=LocalTraining(epochs=1, batch_size=8))
        found = compare(["kt_pfl", "local"], by_hand, rounds=1)
        assert found.results[0].settings["training"]["batch_size"] == 8
        assert "data given in Python" in found.report.markdown

    def test_replaced_fields_are_the_settings_of_the_report(self, fed: Federation) -> None:
        (result,) = compare(["local"], replace(fed, training=LocalTraining(epochs=1, batch_size=7)), rounds=1).results
        assert (result.settings["training"]["batch_size"], result.settings["private"]["source"]) == (7, "digits")

    def test_the_evaluation_of_the_pipelines(self, fed: Federation) -> None:
        result = run("kt_pfl", fed, rounds=1, evaluation={"adapt_epochs": [0, 1]})
        assert {"after_transfer", "adapted_1"} <= set(result.final)
        assert result.runs[0].theorem is not None
        assert "adapted_1" not in run("kt_pfl", fed, rounds=1).final
        with pytest.raises(InputError, match=r"evaluation\.adapt_epoch does not exist"):
            run("local", fed, rounds=1, evaluation={"adapt_epoch": [0]})

    def test_participation(self, fed: Federation) -> None:
        result = run("local", fed, rounds=2, participation=0.4)
        assert [len(record.cohort) for record in result.runs[0].history] == [2, 2]
        with pytest.raises(InputError, match=r"participation is 0\.0; it must be"):
            run("local", fed, participation=0.0)

    def test_a_terminal_shows_the_progress_unless_told_otherwise(
        self, fed: Federation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(Console, "is_terminal", True)
        for shown in (True, False):
            compare(["local"], fed, rounds=1, progress=shown)
            run("local", fed, rounds=1, progress=shown)
            assert ("All runs" in capsys.readouterr().err) == shown

    def test_an_interrupted_call_continues(self, fed: Federation, tmp_path: Path) -> None:
        first = run("local", fed, rounds=2, checkpoints=tmp_path)
        (file,) = tmp_path.rglob("checkpoint.pt")
        written = file.stat().st_mtime_ns
        again = run("local", fed, rounds=2, checkpoints=tmp_path)
        assert file.stat().st_mtime_ns == written, "nothing was trained again"
        assert again.final == first.final
        assert len(list(tmp_path.rglob("checkpoint.pt"))) == 1

    def test_other_initial_models_are_another_run(self, fed: Federation, tmp_path: Path) -> None:
        other = replace(fed, build=lambda name: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)))
        first, second = (run("local", each, rounds=1, checkpoints=tmp_path) for each in (fed, other))
        assert first.final != second.final
        assert len(list(tmp_path.rglob("checkpoint.pt"))) == 2

    def test_tables(self, fed: Federation) -> None:
        found = compare(["kt_pfl", "local"], fed, rounds=1)
        assert len(str(found)) < 3000
        assert str(found).startswith("comparison\n")
        assert set(found.table().iloc[:, 0]) >= {"KT-pFL", "Local-only"}
        runs = found.to_pandas().query("point == 'after_transfer'")
        expected = {result.method: result.final["after_transfer"].mean for result in found.results}
        assert dict(zip(runs["method"], runs["accuracy"], strict=True)) == pytest.approx(expected)
        assert {"round", "after_transfer"} <= set(found.to_pandas("rounds").columns)
        assert {"After transfer", "Minus local-only"} <= set(found.table().columns), "fractions of 1, without units"
        with pytest.raises(InputError, match="file of the report 'run' is unknown"):
            found.to_pandas("run")


def test_clients_are_called_as_their_source_calls_them(tmp_path: Path) -> None:
    names = np.array(["anne", "bill"])
    np.savez(tmp_path / "mine.npz", images=IMAGES, labels=LABELS, clients=names[np.arange(len(LABELS)) // 3 % 2])
    fed = federation("npz:mine.npz", None, ["mlp"], "natural", folder=tmp_path, public={"batch": 9})
    assert run("local", fed, rounds=1).runs[0].names == ["anne", "bill"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainig": {}}, "setting of a federation 'trainig' is unknown (did you mean 'training'?)"),
        ({"rounds": 3}, "setting of a federation 'rounds' is unknown"),
        ({"architectures": 5}, "federation.architectures"),
        ({"architectures": "mpl"}, "'mpl', which does not exist; did you mean 'mlp'?"),
        ({"training": {"epochs": -1}}, "federation.training.epochs is -1"),
        ({"seed": -1}, "federation.seed is -1; it must be an integer from 0 to"),
        ({"public": {"batch": 10_000}}, "lower public.batch to 539 or less"),
        ({"private": {"source": "mnist"}}, "federation.private.source is set, and so is data"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        federation("digits", **settings)  # type: ignore[arg-type]
    assert message in str(error.value)


def test_clients_start_from_pretrained_weights(tmp_path: Path) -> None:
    weights = models.build("mlp", (1, 28, 28), 3).state_dict()
    torch.save(weights, tmp_path / "mlp.pth")
    fed = federation(
        "digits", clients=5, architectures={"mlp": 2, "cnn": 3}, folder=tmp_path, pretrained={"mlp": "mlp.pth"}
    )
    assert [client.architecture for client in fed.clients] == ["mlp", "cnn", "mlp", "cnn", "cnn"]
    found = fed.initial_models()[2]
    assert torch.equal(found["1.weight"], weights["1.weight"])
    assert found["3.weight"].shape == (10, 64)  # drawn: the file's has three classes
    with pytest.raises(InputError, match=r"/mlp\.pth: none of the \d tensors of the pretrained weights of cnn fits"):
        federation("digits", clients=5, architectures=["cnn"], folder=tmp_path, pretrained={"cnn": "mlp.pth"})
    with pytest.raises(InputError, match=r"An architecture of federation\.pretrained is 'lenet', which does not exist"):
        federation("digits", clients=5, architectures=["mlp"], folder=tmp_path, pretrained={"lenet": "mlp.pth"})
    with pytest.raises(InputError, match=r"the path '\.\./mlp\.pth' leads out of "):
        federation("digits", clients=5, architectures=["mlp"], folder=tmp_path, pretrained={"mlp": "../mlp.pth"})
