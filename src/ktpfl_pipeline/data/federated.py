"""The data of an experiment, the same for all methods: private samples, public set, and partitions by seed."""

import hashlib
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any
from zlib import crc32

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.warnings import Warned
from ktpfl_pipeline.data.feature_skew import FeatureSkew
from ktpfl_pipeline.data.partition import ClientIndices, label_counts
from ktpfl_pipeline.data.standardization import Fitted, FrequentTokens, Standardization

_KEPT = ("inputs", "labels", "native", "class_names", "columns", "fill", "missing")
"""The fields of private samples that prepared data keep, besides the vocabulary."""


@dataclass(frozen=True, eq=False)
class PublicSet:
    """Unlabeled inputs that no client owns.

    Attributes:
        inputs: (M, ...), in the format of the private inputs.
        indices: for each seed, the indices of the inputs that are public, (m,) int64 ascending; empty before they are
            chosen.
        warnings: what was found when the inputs were read and chosen.
    """

    inputs: Tensor
    indices: dict[int, Tensor] = field(default_factory=dict)
    warnings: tuple[Warned, ...] = ()

    def of_seed(self, seed: int) -> Tensor:
        """Return the public inputs of one seed, (m, ...). If all inputs are public, `inputs` itself is returned."""
        chosen = self.indices[seed]
        return self.inputs if len(chosen) == len(self.inputs) else self.inputs[chosen]


@dataclass(frozen=True, eq=False)
class Facts:
    """Recorded facts about the data of one seed's runs.

    Attributes:
        label_counts: (N, K) number of private samples per client and class; (N, 1) number of private samples per client
            if the server does not know the labels.
        fingerprint: a hash of the data.
        shape: the shape of an input.
        native: the shape of an input in the private source; empty if it may differ between inputs.
        kind: the name of the kind of inputs, see `core.kinds`.
        profile: the numbers of ``samples``, ``public samples``, ``clients`` including newcomers, and ``classes``.
        class_names: (K,) the names of the classes in the source; None if the source has no names.
        tested: (N,) a hash of each client's test samples, by which seeds with equal ones are known; empty if unknown.
    """

    label_counts: Tensor
    fingerprint: str
    shape: list[int]
    native: list[int]
    kind: str
    profile: dict[str, int]
    class_names: tuple[str, ...] | None = None
    tested: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SeedData:
    """The data of the runs with one seed. All these runs share the tensors, which must not be changed.

    Attributes:
        private: all private samples of the source, before standardization and feature skew.
        public: the public inputs, (m, ...), before standardization.
        partition: the indices of each client's private samples.
        skew: the feature skew of the clients; None without skew.
        names: (N,) the names of the clients in the source; empty unless the partition is ``natural``.
    """

    private: LabeledDataset
    public: Tensor
    partition: dict[int, ClientIndices]
    skew: FeatureSkew | None = None
    names: tuple[str, ...] = ()

    @cached_property
    def clients(self) -> dict[int, Client]:
        """The clients by id, ids ascending, after standardization and feature skew; they have no architecture yet."""
        names, clients = self.names or [""] * len(self.partition), dict[int, Client]()
        for (n, own), name in zip(sorted(self.partition.items()), names, strict=True):
            train, validation, test = (self._split(n, *each) for each in own._asdict().items())
            clients[n] = Client(n, "", train, validation, test, name)
        return clients

    def _split(self, n: int, split: str, indices: Tensor) -> LabeledDataset:
        inputs = self.standardized(self.private.inputs[indices])
        inputs = inputs if self.skew is None else self.skew.applied(inputs, n, split)
        return LabeledDataset(inputs, self.private.labels[indices])

    @cached_property
    def scale(self) -> Fitted | None:
        """The fit to the training samples: scale of features, or frequent tokens of texts; None for other data."""
        training, known = (own.train for _, own in sorted(self.partition.items())), self.private.vocabulary
        if self.private.kind.standardized:
            return Standardization.of(self.private.inputs, training)
        if known is not None and known.frequent is not None:
            return FrequentTokens.of(self.private.inputs, training, known.size, known.frequent)
        return None

    def standardized(self, inputs: Tensor) -> Tensor:
        """Return private or public inputs in the form that models get: features standardized, rare tokens replaced."""
        return inputs if self.scale is None else self.scale(inputs)

    def facts(self, clients: list[int]) -> Facts:
        """Return the facts to record about the data; `label_counts` are those of the given clients only."""
        profile = {"samples": len(self.private), "public samples": len(self.public), "clients": len(self.partition)}
        return Facts(
            label_counts=self.label_counts[clients],
            fingerprint=self.fingerprint,
            shape=list(self.private.shape),
            native=list(self.private.native or ()),
            kind=self.private.kind.name,
            profile={**profile, "classes": self.private.classes},
            class_names=self.private.class_names,
            tested=tuple(f"{crc32(self.partition[n].test.numpy().tobytes()):08x}" for n in clients),
        )

    @cached_property
    def label_counts(self) -> Tensor:
        """(N, K) number of private samples per client and class, int64."""
        return label_counts(self.private.labels, self.partition, self.private.classes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of samples, public inputs, partition, feature skew and vocabulary. They also determine `scale`."""
        digest = hashlib.sha256()
        for tensor in (self.private.inputs, self.private.labels, self.public):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().data)
        for client, own in sorted(self.partition.items()):
            for split in own:
                digest.update(f"{client}:{len(split)}".encode())
                digest.update(split.contiguous().numpy().data)
        if self.skew is not None:
            digest.update(repr(self.skew).encode())
        if self.private.vocabulary is not None:
            digest.update(repr(self.private.vocabulary).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The data on which all methods of an experiment train and are tested.

    Attributes:
        private: all private samples, (M, ...).
        public: the public set.
        partitions: for each seed, the indices of each client's private samples.
        settings: the settings that determine the data, as plain values.
        skew: kind and number of levels of the feature skew, see `FeatureSkew`; None without skew.
        names: for each seed, the names of the clients in the source; empty unless the partition is ``natural``.
        pretrained: for an architecture, the pretrained weights that its clients start from.
        warnings: what was found when the data were prepared.
    """

    private: LabeledDataset
    public: PublicSet
    partitions: dict[int, dict[int, ClientIndices]]
    settings: dict[str, Any] = field(default_factory=dict)
    skew: tuple[str, int] | None = None
    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    pretrained: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    warnings: tuple[Warned, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the data as tensors and plain values, which `from_plain` reads."""
        private, known = self.private, self.private.vocabulary
        partitions = {seed: {n: tuple(own) for n, own in clients.items()} for seed, clients in self.partitions.items()}
        return {
            **{name: getattr(self, name) for name in ("settings", "skew", "names", "pretrained")},
            "private": {name: getattr(private, name) for name in _KEPT} | {"vocabulary": known and astuple(known)},
            "public": {name: getattr(self.public, name) for name in ("inputs", "indices")},
            "partitions": partitions,
            "warnings": [astuple(each) for each in self.warnings],
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "FederatedData":
        """Return the data from the values that `plain` returned."""
        partitions = {
            seed: {n: ClientIndices(*own) for n, own in clients.items()}
            for seed, clients in values["partitions"].items()
        }
        known = values["private"].get("vocabulary")
        private = LabeledDataset(**{**values["private"], "vocabulary": known and Vocabulary(*known)})
        public = PublicSet(**values["public"])
        others = {name: values[name] for name in ("settings", "skew", "names", "pretrained")}
        return cls(private, public, partitions, **others, warnings=tuple(Warned(*each) for each in values["warnings"]))

    @cached_property
    def seeds(self) -> dict[int, SeedData]:
        """The data of the runs with each seed."""
        return {
            seed: SeedData(
                self.private,
                self.public.of_seed(seed),
                partition,
                self.skew and FeatureSkew(*self.skew, seed),
                self.names.get(seed, ()),
            )
            for seed, partition in self.partitions.items()
        }
