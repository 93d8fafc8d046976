"""What looks wrong in samples and splits is a warning; what is usual is none."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.warnings import collected
from ktpfl_pipeline.data.inspection import alike, axes, of_samples, of_splits
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import ClientIndices, natural, partition
from ktpfl_pipeline.data.sources import load

NUMBERS = np.random.default_rng(0)
ROWS = torch.from_numpy(NUMBERS.normal(size=(200, 4)).astype("f4"))
LABELS = torch.from_numpy(NUMBERS.integers(0, 2, 200))
OWNERS = torch.arange(200) % 4
NAMES = ("east", "north", "south", "west")


def owned(inputs: Tensor = ROWS, labels: Tensor = LABELS, **others: Any) -> OwnedDataset:
    return OwnedDataset(inputs, labels, OWNERS[: len(labels)], NAMES, **others)


def told(
    samples: Any, clients: dict[int, ClientIndices] | None = None, names: tuple[str, ...] = NAMES
) -> dict[str, str]:
    """Return the warnings by kind, of samples that are split by owner unless `clients` are given."""
    with collected() as found:
        of_samples(samples, "mine")
        of_splits(samples, {0: clients or natural(samples, None, 0, groups=samples.groups)}, {0: names}, "mine")
    return {each.kind: each.text for each in found}


def test_usual_samples_cause_no_warning() -> None:
    assert told(owned(class_names=("ill", "well"))) == {}
    images = torch.from_numpy(NUMBERS.integers(0, 256, (200, 3, 8, 8)).astype("u1"))
    assert told(owned(images)) == {}
    assert told(owned(ROWS.reshape(200, 2, 2))) == {}


@pytest.mark.parametrize("column", [LABELS, 3 - 2 * LABELS, 1.0 * (LABELS > 0)], ids=["copy", "coded", "indicator"])
def test_a_copy_of_the_label_among_the_features_is_told(column: Tensor) -> None:
    samples = owned(torch.cat([ROWS, column[:, None].float()], dim=1))
    assert told(samples) == {
        "The label as a feature": "mine: column 4 (from 0) tells the class: each class has one value there. If it was "
        "made from the label, leave it out."
    }
    samples.inputs[0, 4] = 7
    assert told(samples) == {}


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 17), (230, 256)])
def test_images_that_are_nearly_one_color_are_told(low: int, high: int) -> None:
    images = torch.from_numpy(NUMBERS.integers(low, high, (200, 1, 8, 8)).astype("u1"))
    assert told(owned(images)) == {
        "Pixels": f"mine: all pixels are from {low} to {high - 1}, where 0 is black and 255 white: scale them to that "
        "range before they become uint8, or correct image.window."
    }


class TestNames:
    def test_of_missing_values_are_told(self) -> None:
        labels = torch.arange(200) % 3
        found = told(replace(owned(labels=labels, class_names=("ill", "nan", "-")), names=("NA", *NAMES[1:])))
        assert found.keys() == {"Names of no value"}
        assert found["Names of no value"].startswith(
            "mine: the client 'NA' has 50 samples: if that means that the client"
        )
        with collected() as every:
            of_samples(owned(labels=labels, class_names=("ill", "nan", "-")), "mine")
        assert [each.text[:38] for each in every] == ["mine: the class 'nan' has 67 samples: "]

    @pytest.mark.parametrize(
        "names",
        [
            ["Benign", "benign", "benign "],
            ["brain tumor", "brain  tumor"],
            ["yes", "YES"],
            ["stra\u00dfe", "STRASSE"],
            ["m\u00b2", "m2"],  # a superscript
            ["\uff21\uff22", "AB"],  # letters of full width, as Japanese systems write them
            ["1", "1.0"],
            ["01", "1"],
            ["1e3", "1000"],
            ["brain_tumor", "brain-tumor", "brain tumor"],
            ["Y", "y"],
        ],
    )
    def test_that_differ_only_in_form_are_alike(self, names: list[str]) -> None:
        assert alike([*names, "other"]) == [names]

    @pytest.mark.parametrize(
        "names",
        [
            [str(number) for number in range(100)],
            ["-1", "1", "1.5", "1.50001"],
            ["grade -1", "grade 1"],
            ["caf\u00e9", "cafe"],
            [*map(chr, range(65, 91)), *map(chr, range(97, 123))],  # characters, as in EMNIST and Shakespeare
        ],
    )
    def test_that_differ_otherwise_are_not(self, names: list[str]) -> None:
        assert alike(names) == []

    def test_of_classes_and_clients_are_named(self) -> None:
        samples = OwnedDataset(ROWS, LABELS % 3, OWNERS % 3, ("Graz", "graz", "Linz"), class_names=("No", "no ", "yes"))
        with collected() as found:
            of_samples(samples, "mine")
        classes, clients = (each.text for each in found)
        assert classes.startswith("mine: the classes 'No' and 'no ' differ only in capitals, blanks, Unicode form or")
        assert "the clients 'Graz' and 'graz' differ" in clients


class TestAxes:
    @pytest.mark.parametrize(
        ("shape", "words"),
        [
            ((64, 6), "64 channels of 6 steps. If they are 64 steps of 6 channels, save features.transpose(0, 2, 1)"),
            ((128, 1), "If they are 128 steps of 1 channel"),
            ((32, 32, 3), "32 channels of 32 × 3. If they are 32 × 32 with 3 channels"),
            ((28, 28, 1), "If they are 28 × 28 with 1 channel"),
            ((128, 9, 1), "If they are 128 × 9 with 1 channel"),
            ((240, 320, 4), "If they are 240 × 320 with 4 channels"),
        ],
    )
    def test_in_an_unusual_order(self, shape: tuple[int, ...], words: str) -> None:
        assert words in axes(torch.zeros(2, *shape))

    @pytest.mark.parametrize(
        "shape", [(10,), (9, 128), (6, 6), (1, 28, 28), (3, 32, 32), (9, 1, 128), (9, 128, 1), (64, 4, 4), (13, 64, 64)]
    )
    def test_in_the_usual_order(self, shape: tuple[int, ...]) -> None:
        assert axes(torch.zeros(2, *shape)) == ""

    @pytest.mark.parametrize(("steps", "channels"), [(6, 64), (20, 30), (9, 128), (40, 40)])
    def test_of_series_is_seen_in_what_changes_gradually(self, steps: int, channels: int) -> None:
        noise = torch.randn(50, steps, channels, generator=torch.Generator().manual_seed(0))
        walks = noise.cumsum(dim=1) + 5 * torch.arange(channels)  # (M, steps, channels), each channel at its own level
        assert axes(walks).endswith(
            f"If they are {steps} steps of {channels} channels, save features.transpose(0, 2, 1)"
        )
        assert "resemble each other" in axes(walks)
        assert axes(noise) == ""
        if steps == channels:
            assert axes(walks.transpose(1, 2)) == ""

    @pytest.mark.parametrize(("channels", "steps"), [(3, 64), (9, 128), (30, 30)])
    def test_of_channels_that_measure_nearly_the_same_is_usual(self, channels: int, steps: int) -> None:
        draws = torch.Generator().manual_seed(0)
        common = torch.randn(50, 1, steps, generator=draws)
        noise = torch.randn(50, channels, steps, generator=draws)
        for one in (common, common.cumsum(dim=2)):
            assert axes(one + 0.3 * noise) == ""


class TestEqualSamples:
    def test_in_training_and_test_are_counted(self) -> None:
        """Each row occurs five times, so that nearly every test sample has a copy among the training samples."""
        copies = torch.arange(200) // 4 // 5 * 4 + torch.arange(200) % 4  # of one owner
        found = told(owned(ROWS[copies], LABELS[copies]))
        assert found.keys() == {"Equal samples"}
        assert (
            "52 of 52 test samples (100.0%) equal a training sample, 52 of them one of their own client"
            in (found["Equal samples"])
        )

    def test_of_other_clients_count_too(self) -> None:
        rows, labels = (each[torch.arange(200) // 4 * 4] for each in (ROWS, LABELS))  # each of four clients has copies
        clients = {n: ClientIndices(*(part + n for part in SPLIT)) for n in range(4)}
        assert told(owned(rows, labels), clients) == {}, "a row is on the same side at all clients"
        clients[0] = ClientIndices(SPLIT[2], SPLIT[1], SPLIT[0])
        assert "0 of them one of their own client" in told(owned(rows, labels), clients)["Equal samples"]

    def test_a_client_may_have_one_test_sample(self) -> None:
        clients = {
            n: ClientIndices(torch.tensor([n, n + 4]), torch.tensor([n + 8]), torch.tensor([n + 12])) for n in range(4)
        }
        assert told(owned(), clients) == {}

    def test_of_one_client_are_named(self) -> None:
        rows, labels = ROWS.clone(), LABELS.clone()
        rows[OWNERS == 1], labels[OWNERS == 1] = ROWS[1], LABELS[1]
        assert "most at client 'north' (13 of 13)" in told(owned(rows, labels))["Equal samples"]

    @pytest.mark.parametrize("seed", range(3))
    def test_that_coarse_columns_have_by_chance_are_none(self, seed: int) -> None:
        """As age in years and a rounded measurement, or answers to few questions; labels mostly follow from them."""
        drawn = np.random.default_rng(seed)
        age, sugar = drawn.normal(60, 12, 500).round(), drawn.normal(5.5, 0.8, 500).round(1)
        answers = drawn.integers(0, 3, (500, 4))
        for rows, score in ((np.stack([age, sugar], 1), sugar - 5.5), (answers, answers.sum(1) - 4)):
            labels = torch.from_numpy(score + drawn.normal(0, 0.5, 500) > 0).long()
            samples = LabeledDataset(torch.from_numpy(rows.astype("f4")), labels)
            clients = partition(labels, 4, "iid", 0)
            test = torch.cat([own.test for own in clients.values()])
            train = torch.cat([own.train for own in clients.values()])
            assert torch.isin(samples.copies[test], samples.copies[train]).float().mean() > 0.05
            assert told(samples, clients) == {}

    def test_that_are_copies_of_rows_with_coarse_columns_are_counted(self) -> None:
        drawn = np.random.default_rng(0)
        rows = np.stack([drawn.normal(60, 12, 250).round(), *drawn.normal(5.5, 0.8, (2, 250)).round(1)], 1)
        samples = LabeledDataset(
            torch.from_numpy(rows.astype("f4")).repeat(2, 1), LABELS[torch.arange(500) % 250 % 200]
        )
        assert "Equal samples" in told(samples, partition(samples.labels, 4, "iid", 0))

    def test_of_texts_with_other_labels_are_not_copies(self) -> None:
        """Short texts such as "ok" occur often, with any label."""
        words = torch.from_numpy(NUMBERS.integers(2, 5, (400, 2)))
        labels = torch.from_numpy(NUMBERS.integers(0, 2, 400))
        vocabulary = Vocabulary(5, padding=0, words=("", "?", "ok", "no", "yes"))
        samples = LabeledDataset(words, labels, vocabulary=vocabulary)
        assert told(samples, partition(labels, 2, "iid", 0)) == {}
        assert "Equal samples" in told(replace(samples, labels=words[:, 0] % 2), partition(labels, 2, "iid", 0))

    def test_stay_on_one_side_with_keep_equal(self) -> None:
        copies = torch.arange(200) // 4 // 5 * 4 + torch.arange(200) % 4
        samples = owned(ROWS[copies], LABELS[copies])
        assert told(samples, natural(samples, None, 0, groups=samples.copies)) == {}


SPLIT = (torch.arange(0, 120, 4), torch.arange(120, 140, 4), torch.arange(140, 200, 4))
"""The samples of client 0: for training, validation and test."""


class TestGroups:
    PATIENTS = torch.arange(200) // 8  # of two samples at each of four clients

    def test_stay_on_one_side_of_every_split(self) -> None:
        samples = owned(groups=self.PATIENTS)
        for seed in range(3):
            for own in natural(samples, None, seed, groups=self.PATIENTS).values():
                sides = [set(self.PATIENTS[part].tolist()) for part in own]
                assert all(sides)
                assert sum(map(len, sides)) == len(set.union(*sides)) == 25
                assert 10 <= len(own.test) <= 14, "a quarter of 50 samples"

    @pytest.mark.parametrize("scheme", ["iid", "dirichlet", "two_labels"])
    def test_go_to_one_client_where_samples_are_dealt_out(self, scheme: str) -> None:
        parts = partition(LABELS, 3, scheme, 0, groups=self.PATIENTS)
        owners = [set(self.PATIENTS[torch.cat(own)].tolist()) for own in parts.values()]
        assert sum(map(len, owners)) == len(set.union(*owners)) == 25
        sides = [set(self.PATIENTS[part].tolist()) for own in parts.values() for part in own]
        assert sum(map(len, sides)) == 25

    def test_that_the_split_of_the_source_separates_are_counted(self) -> None:
        test = torch.zeros(200, dtype=torch.bool)
        test[::7] = True
        found = told(owned(groups=self.PATIENTS, test=test))
        assert found.keys() == {"Groups on both sides"}
        assert "29 of 29 tested groups have training samples too" in found["Groups on both sides"]


class TestUntrainedClasses:
    def test_of_all_clients_are_named(self) -> None:
        labels, test = LABELS.clone(), torch.zeros(200, dtype=torch.bool)
        test[:60] = True
        labels[:12] = 2
        found = told(owned(labels=labels, test=test, class_names=("healthy", "flu", "measles")))
        assert found.keys() == {"Untrained classes"}
        assert (
            "the class 'measles' has 12 of 60 test samples (20.0%) and no training sample of any"
            in (found["Untrained classes"])
        )

    def test_of_one_client_are_named(self) -> None:
        """Client north has class 1 in its test samples only."""
        labels, test = LABELS.clone(), torch.arange(200) < 60
        labels[(OWNERS == 1) & ~test] = 0
        labels[(OWNERS == 1) & test] = 1
        found = told(owned(labels=labels, test=test))
        assert found.keys() == {"Untrained classes"}
        assert (
            "1 of 4 clients are tested on classes of which they have no training sample, such as client 'north', 15 of"
            in (found["Untrained classes"])
        )


class TestWords:
    @staticmethod
    def texts(ids: Tensor, **others: Any) -> OwnedDataset:
        words = ("[PAD]", "[UNK]", *(f"w{number}" for number in range(998)))
        return owned(ids, vocabulary=Vocabulary(1000, 0, words, 1000, "words"), **others)

    def test_that_are_mostly_in_no_training_text(self) -> None:
        """Each text has tokens of its own, as with sentences that a tokenizer takes for words."""
        ids = torch.arange(2, 1002).reshape(200, 5).clamp(max=999)
        found = told(self.texts(ids))["Unknown words"]
        assert "of 260 tokens of the test texts" in found
        assert "such as 'w" in found
        assert told(self.texts(torch.from_numpy(NUMBERS.integers(2, 50, (200, 5))))) == {}

    def test_that_the_tokenizer_does_not_know(self) -> None:
        """A tokenizer file that does not know the script has the same token everywhere."""
        ids = torch.ones(200, 5, dtype=torch.int64)
        ids[:, 0] = torch.arange(200) % 40 + 2
        found = told(owned(ids, vocabulary=Vocabulary(1000, 0, ("[PAD]", "[UNK]", *map(str, range(998))))))
        assert "such as '[UNK]'" in found["Unknown words"]

    def test_of_one_client(self) -> None:
        ids = torch.from_numpy(NUMBERS.integers(2, 50, (200, 18)))
        ids[OWNERS == 2] = torch.arange(100, 1000).reshape(50, 18)
        assert "tokens of the test texts of client 'south'" in told(self.texts(ids))["Unknown words"]


class TestColumns:
    @pytest.mark.parametrize(
        ("values", "rows", "words"),
        [
            ([-9999.0], 10, "-9999 (10 times), and its other values are from"),
            ([-99.0], 10, "-99 (10 times)"),
            ([-9999.0, -8888.0], 12, "-9999 (6 times), -8888 (6 times)"),
            ([1e6], 1, "column 'hba1c' has 1e+06, and"),
        ],
    )
    def test_values_that_hide_all_others_are_counted(self, values: list[float], rows: int, words: str) -> None:
        features = ROWS.clone()
        features[:rows, 2] = torch.tensor(values).repeat(rows)[:rows]
        found = told(owned(features, columns=("age", "bmi", "hba1c", "sex")))
        assert found.keys() == {"Outliers"}
        assert words in found["Outliers"]

    def test_a_value_that_erases_all_others_is_an_error(self) -> None:
        features = ROWS.clone()
        features[0, 2] = 1e30
        clients = natural(owned(features), None, 0)
        test = clients[0].test[0]
        trained = clients[0]._replace(train=torch.cat([clients[0].train, torch.tensor([0])]))
        with pytest.raises(InputError, match=r"mine: column 2 \(from 0\) has 1e\+30, and its other values are from -"):
            told(owned(features), {**clients, 0: trained})
        features[0, 2], features[test, 2] = 0.0, 1e30  # of a test sample, which standardization does not use
        assert told(owned(features), clients).keys() == {"Outliers"}

    @pytest.mark.parametrize("draw", ["exponential", "standard_cauchy", "lognormal", "standard_t"])
    def test_heavy_tails_are_no_warning(self, draw: str) -> None:
        features = ROWS.clone()
        made = np.random.default_rng(1)
        values = {"lognormal": lambda: made.lognormal(0, 2, 200), "standard_t": lambda: made.standard_t(3, 200)}
        features[:, 0] = torch.from_numpy(values.get(draw, lambda: getattr(made, draw)(size=200))())
        assert told(owned(features)) == {}

    def test_flags_and_counts_of_mostly_zeros_are_no_warning(self) -> None:
        features = ROWS.clone()
        features[:, 0] = (torch.arange(200) % 50 == 0).float()
        features[:, 1] = torch.from_numpy(NUMBERS.poisson(0.2, 200).astype("f4"))
        assert told(owned(features)) == {}

    @pytest.mark.parametrize(
        ("usual", "other"),
        [
            (lambda n: NUMBERS.normal(6, 1, n), lambda n: NUMBERS.normal(42, 8, n)),  # HbA1c in % and mmol/mol
            (lambda n: NUMBERS.normal(37, 0.6, n), lambda n: NUMBERS.normal(98.6, 1, n)),  # °C and °F
            (lambda n: NUMBERS.lognormal(4.6, 0.25, n), lambda n: NUMBERS.lognormal(1.7, 0.25, n)),  # glucose
            (lambda n: NUMBERS.normal(1.7, 0.1, n), lambda n: NUMBERS.normal(170, 10, n)),  # m and cm
        ],
    )
    @pytest.mark.parametrize("others", [1, 2])
    def test_another_unit_of_a_client_is_named(self, usual: Any, other: Any, others: int) -> None:
        """With two of five clients, the median client has the usual unit."""
        owners = torch.arange(200) % 5
        features = torch.from_numpy(np.where(owners < others, other(200), usual(200)).astype("f4"))
        samples = OwnedDataset(features[:, None], LABELS, owners, tuple("abcde"), columns=("hba1c",))
        found = told(samples, names=tuple("abcde"))
        assert found.keys() == {"Units"}
        assert f"at client {', '.join(map(repr, 'ab'[:others]))}, and" in found["Units"]
        assert found["Units"].startswith("mine: column 'hba1c' is ")

    def test_two_clients_with_two_units_are_named(self) -> None:
        features = torch.from_numpy(np.where(OWNERS % 2, NUMBERS.normal(1, 0.1, 200), NUMBERS.normal(100, 9, 200)))
        samples = OwnedDataset(features[:, None].float(), LABELS, OWNERS % 2, ("a", "b"))
        assert "at client 'a', and" in told(samples, names=("a", "b"))["Units"]

    def test_clients_that_all_differ_have_no_unit_of_their_own(self) -> None:
        """As in FedProx's synthetic data, where each client has a mean of its own."""
        features = (ROWS[:, :1] * 0.01 + OWNERS[:, None]).float()
        assert told(owned(features)) == {}

    def test_shifted_clients_and_categories_are_no_warning(self) -> None:
        features = ROWS + OWNERS[:, None] * 0.5
        features[:, 0] = (OWNERS == 1).float()  # a category that one client alone has
        assert told(owned(features)) == {}


def test_the_worst_seed_is_named() -> None:
    samples = LabeledDataset(ROWS, LABELS)
    good = partition(LABELS, 4, "iid", 0)
    bad = {n: ClientIndices(own.train, own.validation, own.train) for n, own in good.items()}
    with collected() as found:
        of_splits(samples, {3: good, 7: bad}, {}, "mine")
    (one,) = found
    assert one.text.startswith("mine, seed 7: ")


@pytest.mark.skipif("KTPFL_REAL_DATA" not in os.environ, reason="KTPFL_REAL_DATA names no folder")
@pytest.mark.parametrize(
    "name", ["har", "camera_traps", "shakespeare", "mnist", "fashion_mnist", "cifar10", "cifar100"]
)
def test_real_data_cause_no_warning(name: str) -> None:
    folder = Path(os.environ["KTPFL_REAL_DATA"])
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not there")
    with collected() as found:
        samples = load(f"npz:{name}.npz", folder)
        of_samples(samples, name)
        natural_ = isinstance(samples, OwnedDataset)
        for scheme in ("natural",) if natural_ else ("iid", "dirichlet", "all_labels"):
            parts = natural(samples, None, 0) if natural_ else partition(samples.labels, 10, scheme, 0)
            of_splits(samples, {0: parts}, {0: samples.names if natural_ else ()}, name)
    assert not found
