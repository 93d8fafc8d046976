"""Private images on their way from a source into an experiment."""

import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from cases import case
from experiment import EXPERIMENT

from ktpfl_pipeline.config import parsing
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.warnings import Warned
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.runs.preparation import federated, sample_public_set
from ktpfl_pipeline.runs.samples import load_private, load_public

IMAGES = np.zeros((2, 28, 28), np.uint8)
COUNTS = [40, 20, 20]  # images by class


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Eighty images, each of one gray value of its own."""
    images = np.broadcast_to(np.arange(80, dtype=np.uint8)[:, None, None], (80, 28, 28))
    np.savez(tmp_path / "mine.npz", images=images, labels=np.repeat(np.arange(3), COUNTS))
    return tmp_path


def private(raw: Path, samples: int | None, **changes: Any) -> LabeledDataset:
    own = {"source": "npz:mine.npz", "samples": samples}
    found: LabeledDataset = load_private(parsing.parse("mine", {**EXPERIMENT, "private": own, **changes}), raw)
    return found


def test_null_keeps_all(raw: Path) -> None:
    assert len(private(raw, None)) == len(private(raw, 80)) == 80


def test_samples_per_client_are_what_clients_have_after_an_open_part(raw: Path) -> None:
    """Five clients; 30 % of the images drawn become public. Where the source has fewer, all are used."""
    for wanted, public, drawn in (
        (10, {"source": "digits"}, 50),
        (7, {"source": "open_part", "share": 0.3, "batch": 10}, 50),
        (100, {"source": "digits"}, 80),
    ):
        own = {"source": "npz:mine.npz", "samples_per_client": wanted}
        settings = parsing.parse("mine", {**EXPERIMENT, "private": own, "public": public})
        with case(wanted, public):
            assert len(load_private(settings, raw)) == drawn


def test_samples_are_given_in_one_way(raw: Path) -> None:
    own = {"source": "npz:mine.npz", "samples": 50, "samples_per_client": 10}
    with pytest.raises(InputError, match=r"mine.private.samples is 50 and private.samples_per_client is 10"):
        parsing.parse("mine", {**EXPERIMENT, "private": own})


def test_no_image_is_brought_to_another_size_silently(raw: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert private(raw, None).native == (1, 28, 28)
    assert caplog.messages == []
    brought = private(raw, None, image={"channels": 3, "size": [24, 36]})
    assert (brought.shape, brought.native) == ((3, 24, 36), (1, 28, 28))
    assert caplog.messages == ["Images of npz:mine.npz: 28 × 28 gray, converted to 24 × 36 RGB."]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(1, 11), "no sample has class 0, so models have 10 classes, which"),
        (np.array([4, 0, 1]), "no sample has classes 2, 3, so models have 3 classes, which"),
        (np.array([9999, 0]), "no sample has classes 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 9,988 more, so models have 2"),
    ],
    ids=["from 1", "a gap", "many"],
)
def test_class_numbers_that_no_sample_has_are_no_classes(
    tmp_path: Path, labels: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    labels = labels.repeat(10)
    np.savez(tmp_path / "mine.npz", images=np.zeros((len(labels), 28, 28), np.uint8), labels=labels)
    found = private(tmp_path, None)
    assert found.class_names == tuple(map(str, sorted(set(labels.tolist()))))
    assert [int(found.class_names[label]) for label in found.labels] == labels.tolist()
    assert caplog.messages[0].startswith(f"npz:mine.npz: {words}")


def test_classes_without_samples_stay_where_the_source_names_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels, names = np.arange(2).repeat(10) * 2, np.array(["ill", "sick", "well", "unknown"])
    images = np.zeros((len(labels), 28, 28), np.uint8)
    np.savez(tmp_path / "mine.npz", images=images, labels=labels, classes=names)
    found = private(tmp_path, None)
    assert (found.classes, found.labels.tolist()) == (4, labels.tolist())
    assert caplog.messages[0].startswith("npz:mine.npz: no sample has classes sick, unknown; the source names them")


def test_classes_that_the_settings_choose_leave_no_gap(raw: Path, caplog: pytest.LogCaptureFixture) -> None:
    private(raw, None, private={"source": "npz:mine.npz", "classes": [0, 2]})
    private(raw, 20)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_part_has_the_label_distribution_of_all(raw: Path) -> None:
    part = private(raw, 20)
    assert part.labels.bincount().tolist() == [10, 5, 5]
    values = part.inputs[:, 0, 0, 0].tolist()
    assert values == sorted(set(values)), "each image once, in the order of the source"
    assert part.labels.tolist() == [0 if value < 40 else 1 if value < 60 else 2 for value in values]


def test_which_images_there_are_is_the_experiments_not_the_seeds(raw: Path) -> None:
    first, second = private(raw, 20, seeds=[0]), private(raw, 20, seeds=[1, 2])
    assert torch.equal(first.inputs, second.inputs)


def test_more_than_there_are(raw: Path) -> None:
    with pytest.raises(InputError) as refused:
        private(raw, 81)
    assert str(refused.value) == (
        "private.samples is 81 and there are 80 private samples: lower it, or take all with private.samples: null."
    )


def test_too_few_for_every_class(raw: Path) -> None:
    with pytest.raises(
        InputError, match=r"^private.samples is 2, which leaves class [12] without a sample: raise it.$"
    ):
        private(raw, 2)


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Forty samples of twelve values, of four clients, with public ones."""
    features, labels = np.arange(480.0).reshape(40, 12), np.arange(40) % 2
    np.savez(
        tmp_path / "mine.npz", features=features, labels=labels, clients=np.arange(40) % 4, public=features[:7] + 1
    )
    return tmp_path


def own(**private: Any) -> Any:
    source = {"source": "npz:mine.npz", "samples": 30, **private}
    return parsing.parse("mine", {**EXPERIMENT, "private": source, "public": {"source": "included"}, "image": None})


def test_samples_keep_their_owners_and_are_given_a_shape(series: Path) -> None:
    samples = load_private(own(shape=[3, 4]), series)
    assert isinstance(samples, OwnedDataset)
    assert samples.inputs.shape == (30, 3, 4)
    numbers = samples.inputs[:, 0, 0].long() // 12
    assert torch.equal(samples.owners, numbers % 4)
    assert torch.equal(samples.labels, numbers % 2)
    assert load_public(own(shape=[3, 4]), series, samples).inputs.shape == (7, 3, 4)


def test_a_natural_partition_needs_owners(series: Path) -> None:
    natural = {"scheme": "natural"}
    assert len(private(series, None, partition=natural, clients=None, image=None)) == 40
    np.savez(series / "mine.npz", images=np.zeros((80, 28, 28), np.uint8), labels=np.arange(80) % 2, public=IMAGES)
    with pytest.raises(
        InputError, match=r"natural, .* 'npz:mine.npz' .* \(its arrays are images, labels, public\): choose"
    ):
        private(series, None, partition=natural, clients=None)
    with pytest.raises(InputError, match=r"the samples of the private source 'digits' have no owners: choose one"):
        private(series, None, partition=natural, clients=None, private={"source": "digits"})


def test_a_shape_of_other_values_is_refused(series: Path) -> None:
    with pytest.raises(
        InputError, match=r"private.shape is \[5, 2\], which is 10 values, and .* has 12, of shape \[12\]"
    ):
        load_private(own(shape=[5, 2]), series)


def test_public_inputs_of_another_kind_or_shape_are_refused(series: Path) -> None:
    private = load_private(own(), series)
    experiment = replace(own(), public=replace(own().public, source="digits"))
    with pytest.raises(
        InputError, match=r"'digits' has images of shape \(1, 8, 8\) and .* features of shape \(12,\): cho"
    ):
        load_public(experiment, series, private)


def test_features_are_not_brought_to_a_size_of_images(series: Path) -> None:
    with pytest.raises(InputError, match=r"the private source 'npz:mine.npz' has features, .*: set image: null\."):
        load_private(replace(own(), image=parsing.parse("mine", EXPERIMENT).image), series)


def test_a_public_source_that_cannot_be_brought_to_the_images_is_named(raw: Path) -> None:
    np.savez(raw / "features.npz", features=np.ones((4, 3)))
    np.savez(raw / "colors.npz", images=np.zeros((4, 6, 6, 4), np.uint8))
    for source, words in (
        ("npz:features.npz", "the public source 'npz:features.npz' has features, not images: .* such as open_part"),
        ("npz:colors.npz", "images of the public source 'npz:colors.npz' have 4 channels, which cannot .* to 1"),
    ):
        experiment = parsing.parse("mine", {**EXPERIMENT, "public": {"source": source}})
        with pytest.raises(InputError, match=words):
            load_public(experiment, raw, private(raw, None))


def test_more_features_than_samples_are_warned_of(series: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.savez(series / "wide.npz", features=np.eye(6, 7, dtype="f4"), labels=[0, 1] * 3)
    load_private(parsing.parse("mine", {**EXPERIMENT, "image": None, "private": {"source": "npz:wide.npz"}}), series)
    assert "7 features, more than there are samples (6)" in caplog.text
    assert "ktpfl convert csv" in caplog.text


def test_a_column_that_became_a_feature_per_value_is_warned_of(series: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A column of 100 values in 200 samples is warned of, and one of three values is not."""
    for values, warned in ((3, False), (100, True)):
        caplog.clear()
        one_hot = np.arange(200)[:, None] % values == np.arange(values)
        np.savez(series / "wide.npz", features=np.c_[np.arange(200.0), one_hot], labels=[0, 1] * 100)
        wide = {**EXPERIMENT, "image": None, "private": {"source": "npz:wide.npz"}}
        load_private(parsing.parse("mine", wide), series)
        assert ("one feature per value" in caplog.text) == warned


@pytest.mark.parametrize(("scheme", "clients", "warned"), [("natural", None, True), ("iid", 2, False)])
def test_an_open_part_of_natural_clients_is_warned_of(
    scheme: str, clients: int | None, warned: bool, series: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.savez(
        series / "owned.npz", features=np.arange(160.0).reshape(40, 4), labels=[0, 1] * 20, clients=np.arange(40) % 2
    )
    changes = {"image": None, "clients": clients, "private": {"source": "npz:owned.npz"}}
    settings = {**EXPERIMENT, **changes, "public": {"source": "open_part", "share": 0.25, "batch": 5}}
    experiment = parsing.parse("mine", {**settings, "partition": {"scheme": scheme}})
    private_data = load_private(experiment, series)
    public = sample_public_set(experiment, private_data, load_public(experiment, series, private_data))
    assert len(public.of_seed(experiment.seeds[0])) == 10
    assert [each.kind for each in public.warnings] == ["Public samples"] * warned
    made = federated(experiment, replace(private_data, warnings=(Warned("Axes", "read"),)), public, series)
    assert [each.kind for each in made.warnings] == ["Axes", *["Public samples"] * warned]
    assert ("shares 25 % of the clients' own samples with all clients" in caplog.text) == warned


def test_archives_of_the_private_and_the_public_source_are_named_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    asked = {**EXPERIMENT, "private": {"source": "cifar10"}, "public": {"source": "cifar100", "batch": 8}}
    experiment = parsing.parse("mine", asked)
    with pytest.raises(InputError) as both:
        load_private(experiment, tmp_path)
    assert "cifar-10-python.tar.gz" in str(both.value)
    assert re.search(rf"put cifar-100-python.tar.gz \(https://\S+\) into {tmp_path}", str(both.value))
    (tmp_path / "cifar-100-python.tar.gz").touch()
    with pytest.raises(InputError) as one:
        load_private(experiment, tmp_path)
    assert "cifar-100" not in str(one.value)
