"""What looks wrong in samples and their splits although they can be read; each finding is a warning.

`of_samples` looks at samples as a source returns them, `of_splits` at the partitions of a federation. A share of
`CHANCE` occurs by chance, such as blank images; more is a warning.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import listed, plural
from ktpfl_pipeline.core.kinds import FEATURES, of
from ktpfl_pipeline.core.warnings import warn
from ktpfl_pipeline.data.columns import of_columns, one_per_value, tell_the_class
from ktpfl_pipeline.data.owned import OwnedDataset
from ktpfl_pipeline.data.partition import ClientIndices, label_counts
from ktpfl_pipeline.data.sources.parts import MISSING, NUMBER
from ktpfl_pipeline.data.standardization import UNKNOWN, FrequentTokens

CHANCE = 0.01
"""The share of test samples up to which a finding causes no warning."""
OF_A_CLIENT, FEW = 0.1, 5
"""A client is named if a finding concerns more than a share `OF_A_CLIENT` of its test samples, and at least `FEW`."""
TIMES = 3
"""Equal samples are copies beyond this number of times what chance gives, which is an estimate."""
CHARACTERS = 10
"""More class names of one character than this are characters, where `a` and `A` differ."""
RANGE = 32
"""Pixels of all images within fewer values than this are nearly one color."""
CHANNELS = 4
"""The most channels of a usual image."""
ALIKE, GRADUAL = 200, 0.15
"""Series are looked at in up to `ALIKE` samples and steps. Along an axis on which neighbors correlate by `GRADUAL` more
than other pairs, inputs change gradually; on the axis of channels, by less than a third of it."""
Numbers = NDArray[Any]
_UNKNOWN = ("[UNK]", "<unk>", "<|unk|>", "<UNK>")


def of_samples(samples: LabeledDataset, where: str) -> None:
    """Warn of names that are alike or mean no value, of pixels, of unusual axes, and of ids and labels as features."""
    for each in names(samples):
        warn("Names alike", f"{where}: {each}")
    for each in names_of_no_value(samples):
        warn("Names of no value", f"{where}: {each}")
    if narrow := pixels(samples.inputs):
        warn("Pixels", f"{where}: {narrow}")
    if told := tell_the_class(samples):
        warn("The label as a feature", f"{where}: {told}")
    if wide := one_per_value(samples.inputs):
        warn("One feature per value", f"{where}: {wide}")
    if order := axes(samples.inputs):
        warn("Axes", f"{where}: {order}.")


def names(samples: LabeledDataset) -> list[str]:
    """Return which names of classes and clients are nearly equal, in sentences."""
    return [
        f"{differ(found, plurals)}: if they are one {what}, give it one name."
        for what, plurals, known, _ in _named_things(samples)
        if (found := alike(known))
    ]


def names_of_no_value(samples: LabeledDataset) -> list[str]:
    """Return which names of classes and clients are those of missing values, in sentences, but no punctuation."""
    return [
        f"the {what} {name!r} has {plural(int((numbers == place).sum()), 'sample')}: if that means that the {what} is "
        "unknown, leave them out."
        for what, _, known, numbers in _named_things(samples)
        for place, name in enumerate(known)
        if name in MISSING and len(name) > 1
    ]


def _named_things(samples: LabeledDataset) -> list[tuple[str, str, tuple[str, ...], Tensor]]:
    """Return for classes and clients the noun, its plural, their names, and the number of each sample's."""
    found = [("class", "classes", samples.class_names or (), samples.labels)]
    if isinstance(samples, OwnedDataset):
        found.append(("client", "clients", samples.names, samples.owners))
    return found


def pixels(inputs: Tensor) -> str:
    """Return why images, (M, C, H, W), may have lost their contrast; empty if they have not, or for other inputs."""
    if not of(inputs).pixels:
        return ""
    low, high = int(inputs.min()), int(inputs.max())
    if high - low >= RANGE:
        return ""
    return (
        f"all pixels are from {low} to {high}, where 0 is black and 255 white: scale them to that range before they "
        "become uint8, or correct image.window."
    )


def alike(names: Iterable[str]) -> list[list[str]]:
    """Return the groups of names that differ only in capitals, blanks, Unicode form or the format of a number."""
    given = list(names)
    characters = sum(len(name) == 1 for name in given) > CHARACTERS
    groups = defaultdict(list)
    for name in given:
        groups[name if characters and len(name) == 1 else _form(name)].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _form(name: str) -> object:
    """Return what a name is without its capitals, blanks, Unicode form and format of a number."""
    plain = " ".join(re.sub(r"_|(?<=[^\W\d])-(?=[^\W\d])", " ", unicodedata.normalize("NFKC", name).casefold()).split())
    return float(plain) if NUMBER.fullmatch(plain) else plain


def differ(groups: Sequence[Sequence[str]], what: str) -> str:
    """Return in words that the names of each group are nearly equal; `what` is their noun."""
    *first, last = map(repr, groups[0])
    others = len(groups) - 1
    more = f", as do{'es' * (others == 1)} {plural(others, 'other group')} of names" if others else ""
    return (
        f"the {what} {', '.join(first)} and {last} differ only in capitals, blanks, Unicode form or the format of a "
        f"number{more}"
    )


def axes(inputs: Tensor) -> str:
    """Return why the axes of inputs, (M, ...), may not be channels first; empty if their order looks right."""
    shape = tuple(inputs.shape[1:])
    moving = len(shape) == 2 and shape[0] <= shape[1] and _moves_along_first(inputs[:ALIKE].numpy())
    if len(shape) == 2 and (shape[0] > shape[1] or moving):
        channels, steps = shape
        seen = ", and neighboring channels resemble each other more than neighboring steps do" if moving else ""
        return (
            f"samples are {channels} channels of {plural(steps, 'step')}{seen}. If they are {channels} steps of "
            f"{plural(steps, 'channel')}, save features.transpose(0, 2, 1)"
        )
    if len(shape) == 3:
        first, second, last = shape
        if last <= CHANNELS < min(first, second) and (last > 1 or first >= second):
            return (
                f"samples are {first} channels of {second} × {last}. If they are {first} × {second} with "
                f"{plural(last, 'channel')}, save features.transpose(0, 3, 1, 2)"
            )
    return ""


def _moves_along_first(series: Numbers) -> bool:
    """Return whether series, (M, C, L), change gradually along their first axis, as time does, and not the second.

    Of a pair of neighbors in time, both values are more alike than values far apart. Channels have no such order.
    """
    first, second = _gradual(series[:, :, :ALIKE]), _gradual(series[:, :, :ALIKE].transpose(0, 2, 1))
    return first > GRADUAL > 3 * second


def _gradual(series: Numbers) -> float:
    """Return by how much neighbors along the first axis of series, (M, T, C), correlate more than other pairs do."""
    rows = (series - series.mean(axis=(0, 1))).transpose(1, 0, 2).reshape(series.shape[1], -1)
    rows = rows[np.ptp(rows, axis=1) > 0]
    if len(rows) < 3 or rows.shape[1] < ALIKE:
        return 0.0
    apart = np.abs(np.subtract.outer(np.arange(len(rows)), np.arange(len(rows))))
    alike = np.corrcoef(rows)
    return float(alike[apart == 1].mean() - alike[apart > 1].mean())


class _Split(NamedTuple):
    """The partition of one seed: its clients' names and indices, and how messages name the seed."""

    seed: str
    names: Sequence[str]
    clients: Sequence[ClientIndices]

    def joined(self, part: str) -> Tensor:
        return torch.cat([getattr(own, part) for own in self.clients])


def of_splits(
    samples: LabeledDataset,
    partitions: Mapping[int, Mapping[int, ClientIndices]],
    names: Mapping[int, Sequence[str]],
    where: str,
) -> None:
    """Warn of leaks, classes, words and columns that make the result on test samples wrong or hard to reach.

    Args:
        samples: M samples.
        partitions: the indices of each client's samples, by seed and client.
        names: the clients' names in the source, by seed; empty without natural clients.
        where: the source, for messages.

    Raises:
        InputError: if an outlier hides all other values of a column.
    """
    splits = []
    for seed, clients in partitions.items():
        prefix = f"{where}, seed {seed}: " if len(partitions) > 1 else f"{where}: "
        called = [repr(name) for name in names.get(seed, ())] or [str(n) for n in sorted(clients)]
        splits.append(_Split(prefix, called, [own for _, own in sorted(clients.items())]))
    findings: list[tuple[str, list[tuple[float, str]]]] = [
        ("Equal samples", [_leak(samples, split) for split in splits]),
        ("Groups on both sides", [_groups(samples, split) for split in splits]),
        ("Untrained classes", [_untrained(samples, split) for split in splits]),
        ("Untrained classes", [_untrained_at(samples, split) for split in splits]),
        ("Unknown words", [_words(samples, split) for split in splits]),
    ]
    for kind, found in findings:
        share, text = max(found)  # the seed in which it is worst
        if share:
            warn(kind, text)
    if samples.kind.standardized:
        training = torch.cat([split.joined("train") for split in splits])
        of_columns(samples, training, splits[0].clients, splits[0].names if names else (), where)


def _named(split: _Split, shares: Sequence[tuple[int, int]]) -> tuple[list[str], int]:
    """Return the names of the clients that a finding concerns much, and the place of the worst.

    `shares` has one pair per client: the number of test samples that a finding concerns, and that of all test samples.
    """
    much = [n for n, (found, of) in enumerate(shares) if found >= FEW and found > OF_A_CLIENT * of]
    return [split.names[n] for n in much], max(much, key=lambda n: shares[n][0] / shares[n][1], default=-1)


def _leak(samples: LabeledDataset, split: _Split) -> tuple[float, str]:
    """Find test samples whose inputs equal those of a training sample, more than `_by_chance`."""
    copies, train, test = samples.copies.numpy(), split.joined("train").numpy(), split.joined("test").numpy()
    leaked = np.isin(copies[test], copies[train])
    own = [np.isin(copies[each.test.numpy()], copies[each.train.numpy()]) for each in split.clients]
    shares = [(int(each.sum()), len(each)) for each in own]
    if leaked.mean() <= CHANCE and not _named(split, shares)[0]:
        return 0.0, ""
    known = _Known.of(samples, copies)
    beyond = [
        (max(0, int(found - TIMES * known.by_chance(each.train.numpy(), each.test.numpy()))) if found else 0, of)
        for each, (found, of) in zip(split.clients, shares, strict=True)
    ]
    much, worst = _named(split, beyond)
    if not (leaked.sum() - TIMES * known.by_chance(train, test) > CHANCE * len(test) or much):
        return 0.0, ""
    share = leaked.mean()
    row = int(test[leaked.argmax()])
    twin = int(train[(copies[train] == copies[row]).argmax()])
    same = sum(found for found, _ in shares)
    most = f", most at client {split.names[worst]} ({shares[worst][0]:,} of {shares[worst][1]:,})" if much else ""
    return float(share), (
        f"{split.seed}{int(leaked.sum()):,} of {plural(len(test), 'test sample')} ({share:.1%}) equal a training "
        f"sample, {same:,} of them one of their own client{most}, such as the samples {row} and {twin}: test accuracy "
        "counts what was learned by heart. Take copies out, or name what belongs together in `group`."
    )


class _Known(NamedTuple):
    """What says whether equal samples are copies or equal by chance, as rows of a table of few coarse columns are."""

    copies: Numbers  # (M,) the number of the input of each sample
    pairs: Numbers  # (M,) the number of the input and label of each sample
    likely: Numbers  # (M,) the probability of each input if columns were independent; 0 except for rows of a table
    agree: float  # the probability that two samples have the same label

    @classmethod
    def of(cls, samples: LabeledDataset, copies: Numbers) -> "_Known":
        labels, likely = samples.labels.numpy(), np.zeros(len(copies))
        if samples.kind is FEATURES and samples.inputs.ndim == 2:
            for column in samples.inputs.numpy().T:
                _, place, count = np.unique(column, return_inverse=True, return_counts=True)
                likely += np.log(count[place] / len(copies))
            likely = np.exp(likely)
        pairs = np.unique(copies * samples.classes + labels, return_inverse=True)[1]
        return cls(copies, pairs, likely, float(((np.bincount(labels) / len(labels)) ** 2).sum()))

    def by_chance(self, train: Numbers, test: Numbers) -> float:
        """Estimate how many of the samples `test` equal one of `train` by chance: the larger of two estimates.

        With independent columns, a test input of probability q occurs among n training samples with probability
        1 - exp(-nq). And copies have the same label, while the labels of other samples differ with at most the
        probability 1 - `agree`.
        """
        columns = float(-np.expm1(-len(train) * self.likely[test]).sum())
        twins = np.bincount(self.copies[train], minlength=len(self.copies))[self.copies[test]]
        alike = np.bincount(self.pairs[train], minlength=len(self.copies))[self.pairs[test]]
        differ = (1 - alike / np.maximum(twins, 1))[twins > 0].sum()
        return max(columns, float(differ) / (1 - self.agree) if self.agree < 1 else 0.0)


def _groups(samples: LabeledDataset, split: _Split) -> tuple[float, str]:
    """Find groups, such as patients, that a split of the source puts on both sides at one client."""
    if samples.groups is None:
        return 0.0, ""
    groups, both, total = samples.groups, list[tuple[str, int, int]](), 0
    for name, own in zip(split.names, split.clients, strict=True):
        tested, others = groups[own.test].numpy(), torch.cat(own[:2])
        total += len(np.unique(tested))
        for group in np.intersect1d(tested, groups[others]):
            row, twin = (int(part[groups[part] == group][0]) for part in (own.test, others))
            both.append((name, row, twin))
    if not both:
        return 0.0, ""
    client, row, twin = both[0]
    return len(both) / total, (
        f"{split.seed}{len(both):,} of {plural(total, 'tested group')} have training samples too, such as the group of "
        f"the samples {row} and {twin} at client {client}: the split that the source gives separates them. Leave it "
        "out, or correct it."
    )


def _untrained(samples: LabeledDataset, split: _Split) -> tuple[float, str]:
    """Find classes that are tested and that no client trains on."""
    train, test = (_counts(samples, split, part) for part in ("train", "test"))
    lost = (train.sum(dim=0) == 0) & (test.sum(dim=0) > 0)
    share = float(test[:, lost].sum() / test.sum())
    if share <= CHANCE:
        return 0.0, ""
    classes = [_class_name(samples, label) for label in lost.nonzero().flatten().tolist()]
    return share, (
        f"{split.seed}the class{'es' * (len(classes) > 1)} {listed(classes)} ha{'ve' if len(classes) > 1 else 's'} "
        f"{int(test[:, lost].sum()):,} of {plural(int(test.sum()), 'test sample')} ({share:.1%}) and no training "
        "sample of any client, so that no method can be right there: move some to training, or leave the class out."
    )


def _untrained_at(samples: LabeledDataset, split: _Split) -> tuple[float, str]:
    """Find clients that are tested on classes of which only others have training samples."""
    train, test = (_counts(samples, split, part) for part in ("train", "test"))
    lost = test * (train == 0) * (train.sum(dim=0) > 0)
    shares = list(zip(lost.sum(dim=1).tolist(), test.sum(dim=1).tolist(), strict=True))
    much, worst = _named(split, shares)
    if not much:
        return 0.0, ""
    found, of = shares[worst]
    classes = [_class_name(samples, label) for label in lost[worst].nonzero().flatten().tolist()]
    return found / of, (
        f"{split.seed}{len(much):,} of {plural(len(shares), 'client')} are tested on classes of which they have no "
        f"training sample, such as client {split.names[worst]}, {found:,} of {of:,} test samples ({listed(classes)}): "
        "local-only training cannot be right there. Split each client's samples by class if this is not intended."
    )


def _counts(samples: LabeledDataset, split: _Split, part: str) -> Tensor:
    none = torch.arange(0)
    parts = {n: ClientIndices(getattr(own, part), none, none) for n, own in enumerate(split.clients)}
    return label_counts(samples.labels, parts, samples.classes)


def _class_name(samples: LabeledDataset, label: int) -> str:
    return str(label) if samples.class_names is None else repr(samples.class_names[label])


def _words(samples: LabeledDataset, split: _Split) -> tuple[float, str]:
    """Find test texts of which most tokens are in no training text."""
    known = samples.vocabulary
    if known is None:
        return 0.0, ""
    training, size = [own.train for own in split.clients], known.size
    heard = samples.inputs[torch.cat(training)].flatten().bincount(minlength=size) > 0
    if known.frequent is not None:
        kept = FrequentTokens.of(samples.inputs, training, size, known.frequent).kept
        heard &= torch.zeros(size, dtype=torch.bool).index_fill(0, kept, True)
        heard[UNKNOWN] = False
    words = known.words or ()
    for name in _UNKNOWN:
        if name in words:
            heard[words.index(name)] = False
    tested = [samples.inputs[own.test].flatten() for own in split.clients]
    tested = [each if known.padding is None else each[each != known.padding] for each in tested]
    strange = [each[~heard[each]] for each in tested]
    much = [n for n, each in enumerate(strange) if len(each) > max(len(tested[n]) / 2, 100)]
    total, lost = sum(map(len, tested)), sum(map(len, strange))
    if not (much or lost > total / 2):
        return 0.0, ""
    worst = max(much, key=lambda n: len(strange[n]) / len(tested[n]), default=0)
    who = "" if lost > total / 2 else f" of client {split.names[worst]}"
    found, of = (lost, total) if lost > total / 2 else (len(strange[worst]), len(tested[worst]))
    token = int((torch.cat(strange) if lost > total / 2 else strange[worst])[0])
    example = repr(words[token]) if words else f"id {token}"
    return found / of, (
        f"{split.seed}{found:,} of {of:,} tokens of the test texts{who} ({found / of:.0%}), such as {example}, are in "
        "no training text or not in the vocabulary. Models cannot read them: set text.tokenizer to characters "
        "or to the file of a tokenizer, or raise text.vocabulary."
    )
