"""`ktpfl check`: what passes all checks ends with 0, and a failed check is told in a sentence, with one's own lines."""

import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from ktpfl_pipeline.check.command import check

METHODS = """
import torch
from dataclasses import dataclass

from ktpfl_pipeline.core import exchange
from ktpfl_pipeline.core.method import Personal, PersonalState


@dataclass(frozen=True)
class Good(Personal):
    title = "Good"

    def round(self, state, cohort, t, fed):
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        return exchange.teach(fed, state, upload, upload.soft.mean(dim=0), t)


class Writes(Good):
    title = "Writes"

    def round(self, state, cohort, t, fed):
        for tensor in state.models[cohort[0]].values():
            if tensor.is_floating_point():
                tensor.mul_(0.99)
        return super().round(state, cohort, t, fed)


class Draws(Good):
    title = "Draws"

    def round(self, state, cohort, t, fed):
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        noise = torch.rand(upload.soft.shape[1:]).to(upload.soft)
        return exchange.teach(fed, state, upload, noise / noise.sum(dim=1, keepdim=True), t)


class Remembers(Good):
    title = "Remembers"
    seen = 0

    def round(self, state, cohort, t, fed):
        Remembers.seen += 1
        upload = exchange.train_and_predict(fed, state.models, cohort, t)
        soft = upload.soft.mean(dim=0) if Remembers.seen % 5 else upload.soft[0]
        return exchange.teach(fed, state, upload, soft, t)


class Lies(Good):
    title = "Lies"
    exchanges = frozenset({"parameters"})


class Absent(Good):
    title = "Absent"

    def round(self, state, cohort, t, fed):
        after, report = super().round(state, cohort, t, fed)
        models = {n: {k: v * 1 if v.dtype is torch.int64 else v * 0.999 for k, v in m.items()}
                  for n, m in after.models.items()}
        return PersonalState(models), report


class Idle(Good):
    title = "Idle"

    def round(self, state, cohort, t, fed):
        batch = fed.public_batch(t)
        own = {n: state.models[n] for n in cohort}
        upload = exchange.train_and_predict(fed, own, cohort, t)
        _, report = exchange.teach(fed, state, upload, upload.soft.mean(dim=0), t)
        return state, report


class Raises(Good):
    title = "Raises"

    def round(self, state, cohort, t, fed):
        return self.helper(cohort)

    def helper(self, cohort):
        return torch.ones(2) @ torch.ones(3)
"""

OTHERS = """
import numpy as np
import torch
from torch import nn

from ktpfl_pipeline.core.dataset import LabeledDataset


class InPlace(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x):
        return self.net(x.mul_(0.8))


def in_place(shape, classes):
    return InPlace(shape[0], classes)


def noisy(shape, classes):
    class Noisy(InPlace):
        def forward(self, x):
            return self.net(x + torch.from_numpy(np.random.default_rng().normal(size=x.shape)).float() * self.training)
    return Noisy(shape[0], classes)


def bag(shape, classes):
    embedding = nn.EmbeddingBag(shape.vocabulary, 16)
    return nn.Sequential(embedding, nn.Linear(16, classes))


def short(shape, classes):
    embedding = nn.EmbeddingBag(shape.vocabulary - 1, 16)
    return nn.Sequential(embedding, nn.Linear(16, classes))


def steady(argument, folder):
    return LabeledDataset(torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.arange(6) % 3)


def gap(argument, folder):
    return LabeledDataset(torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 2, 0, 2, 0, 2]))


def shuffled(argument, folder):
    return LabeledDataset(torch.rand(6, 5), torch.arange(6) % 3)


def last(argument, folder):
    return LabeledDataset(torch.zeros(6, 12, 12, 3, dtype=torch.uint8), torch.arange(6) % 3)


def twice(argument, folder):
    return LabeledDataset(torch.ones(6, 5), torch.arange(6) % 3, class_names=("No", "no", "yes"))


def unclear(one, other, third):
    return None
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own") / "checked_own"
    place.mkdir()
    (place / "__init__.py").touch()
    (place / "methods.py").write_text(METHODS)
    (place / "others.py").write_text(OTHERS)
    return place


@pytest.fixture(autouse=True)
def importable(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def checked(*given: str) -> Result:
    return CliRunner().invoke(check, [*given])


@pytest.mark.parametrize(
    "given",
    [
        ["checked_own.methods:Good"],
        ["fedavg"],
        ["digits"],
        ["checked_own.others:steady"],
        ["checked_own.others:in_place", "--shape=20", "--classes=3"],
        ["checked_own.others:bag", "--shape=12", "--vocabulary=30", "--classes=3"],
        ["text_transformer", "--shape=12", "--vocabulary=30", "--classes=3"],
    ],
)
def test_what_passes_all_checks_ends_with_0(given: list[str]) -> None:
    found = checked(*given)
    assert found.output.endswith(f"{given[0]}: all checks passed.\n")
    assert "FAILED" not in found.output
    assert found.exit_code == 0


def test_names_that_are_nearly_equal_are_told() -> None:
    found = checked("checked_own.others:twice")
    assert (
        "ok      has channels first, and names that are told apart\n        the classes 'No' and 'no' differ"
        in found.output
    )
    assert found.exit_code == 0


BROKEN = {
    "Writes": ("leaves its arguments as they were", "wrote to models["),
    "Draws": ("repeats bit for bit", "draw from fed.stream('what for', t, n)"),
    "Remembers": ("repeats bit for bit", "keep nothing outside the state"),
    "Lies": (
        "reports what it exchanges",
        "counted bytes of predictions, and the class declares to exchange parameters",
    ),
    "Absent": ("leaves clients outside the cohort as they were", "round 3 changed models["),
    "Idle": ("learns", "the mean accuracy is 0."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_failed_check_of_a_method_is_told_in_a_sentence(name: str) -> None:
    what, sentence = BROKEN[name]
    found = checked(f"checked_own.methods:{name}")
    assert f"FAILED  {what}\n" in found.output
    assert sentence in found.output
    assert found.exit_code == 1


def test_an_error_shows_the_lines_of_ones_own_only(package: Path) -> None:
    found = checked("checked_own.methods:Raises")
    lines = found.output.splitlines()
    assert lines[0] == "FAILED  runs on toy data, and writes to no samples"
    assert "it raised RuntimeError: " in lines[1]
    assert [line.strip().partition(", line ")[0] for line in lines[2:-1]] == [str(package / "methods.py")] * 2
    assert lines[3].endswith("in helper: return torch.ones(2) @ torch.ones(3)")
    assert (lines[-1], found.exit_code) == ("checked_own.methods:Raises: 1 check failed.", 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["checked_own.others:noisy", "--shape=20"], "returned other logits for the same inputs, weights and seed"),
        (["checked_own.others:gap"], "FAILED  numbers its classes"),
        (["checked_own.others:shuffled"], "FAILED  returns the same samples again"),
        (["checked_own.others:last"], "12 channels of 12 × 3. If they are 12 × 12 with 3 channels"),
        (["checked_own.others:in_place", "--shape=1,8,8", "--classes=3"], "does not take 3 inputs of 1 x 8 x 8"),
        (["checked_own.others:short", "--shape=12", "--vocabulary=30"], "does not take 3 inputs of 12; it raised"),
        (["checked_own.others:bag", "--vocabulary=30"], "--shape is '1,28,28'; with --vocabulary it must be one"),
        (["fasttext"], "fasttext takes texts: give --shape=<tokens in a text> and --vocabulary=<number of ids>"),
        (["lenet", "--shape=12", "--vocabulary=30"], "lenet takes images; these are tokens of 12"),
        (["checked_own.others:in_place", "--shape=a"], "--shape is 'a'; it must be integers"),
        (["checked_own.others:unclear"], "give --kind=method, model or source"),
        (["checked_own.others:missing"], "there is no 'missing' in checked_own.others"),
        (["kt_pfll"], "did you mean 'kt_pfl'?"),
        (["checked_own.others.bag"], "is not a dotted path, package.module:name; write checked_own.others:bag."),
        (["checked_own.others.gap:mine.csv"], "write checked_own.others:gap:mine.csv."),
        (["mine.npz"], "a file of your own is given as 'npz:mine.npz'."),
    ],
)
def test_what_is_wrong_with_a_model_or_a_source_is_told(given: list[str], said: str) -> None:
    found = checked(*given)
    assert said in found.output
    assert found.exit_code == 1


def test_facts_of_a_model_are_shown() -> None:
    found = checked("checked_own.others:in_place", "--shape=20", "--classes=3")
    assert "63 trained parameters" in found.output
    assert "the layer that makes its logits is net.1, with 20 inputs" in found.output
    assert "it writes to its input, so it is given a copy" in found.output


def test_nothing_of_the_callers_is_changed() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    checked("checked_own.methods:Good")
    assert torch.equal(torch.get_rng_state(), before)
