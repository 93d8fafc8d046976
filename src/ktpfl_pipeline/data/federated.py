"""What every method is given: private samples, the public set, and what each client owns, by seed."""

import hashlib
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabeledDataset, Vocabulary
from ktpfl_pipeline.data.feature_skew import FeatureSkew
from ktpfl_pipeline.data.partition import ClientIndices, label_counts
from ktpfl_pipeline.data.standardization import Fitted, FrequentTokens, Standardization


@dataclass(frozen=True, eq=False)
class PublicSet:
    """Unlabeled inputs that no client owns.

    Attributes:
        inputs: (M, ...), as the private ones.
        indices: by seed, which of them are public, (m,) int64 ascending.
    """

    inputs: Tensor
    indices: dict[int, Tensor]

    def of_seed(self, seed: int) -> Tensor:
        """Return the public inputs of one seed, (m, ...); the whole set if all of it is public."""
        chosen = self.indices[seed]
        return self.inputs if len(chosen) == len(self.inputs) else self.inputs[chosen]


class ClientData(NamedTuple):
    """The labeled samples of one client, split as its indices are."""

    train: LabeledDataset
    validation: LabeledDataset
    test: LabeledDataset


@dataclass(frozen=True, eq=False)
class Facts:
    """Recorded facts about the data of one seed's runs.

    Attributes:
        label_counts: (N, K) private samples of each client by class; (N, 1), all classes together, where only the
            clients themselves know more.
        fingerprint: of all of it.
        shape: of an input.
        native: the same as the private source has it; empty where they had many.
        kind: name of the kind of inputs, see `core.kinds`.
        profile: how many ``samples``, ``public samples``, ``clients``, newcomers too, and ``classes`` there are.
        class_names: (K,) what the source calls them; None where it has no names.
    """

    label_counts: Tensor
    fingerprint: str
    shape: list[int]
    native: list[int]
    kind: str
    profile: dict[str, int]
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class SeedData:
    """The data of one seed's runs. All runs share these read-only tensors, which are made on first use.

    Attributes:
        private: all private samples, as their source gives them.
        public: the public inputs, (m, ...), in the same form.
        partition: by client, the indices of its private samples.
        skew: how images differ between clients; None where they do not.
        names: (N,) what the source calls its clients; empty where a scheme dealt out its samples.
    """

    private: LabeledDataset
    public: Tensor
    partition: dict[int, ClientIndices]
    skew: FeatureSkew | None = None
    names: tuple[str, ...] = ()

    @cached_property
    def clients(self) -> dict[int, ClientData]:
        """Each client's samples as it has them, features standardized, ids ascending."""
        return {n: self._client(n, own) for n, own in sorted(self.partition.items())}

    def _client(self, n: int, own: ClientIndices) -> ClientData:
        splits = []
        for split, indices in own._asdict().items():
            taken = self.private.take(indices)
            inputs = self.standardized(taken.inputs)
            inputs = inputs if self.skew is None else self.skew.applied(inputs, n, split)
            splits.append(LabeledDataset(inputs, taken.labels))
        return ClientData(*splits)

    @cached_property
    def scale(self) -> Fitted | None:
        """The fit to the training samples: the scale of features, or the frequent tokens of texts; None for images."""
        training, known = (own.train for _, own in sorted(self.partition.items())), self.private.vocabulary
        if self.private.kind.standardized:
            return Standardization.of(self.private.inputs, training)
        if known is not None and known.frequent is not None:
            return FrequentTokens.of(self.private.inputs, training, known.size, known.frequent)
        return None

    def standardized(self, inputs: Tensor) -> Tensor:
        """Return inputs, private or public, as models see them: features standardized, rare tokens replaced."""
        return inputs if self.scale is None else self.scale(inputs)

    def facts(self, clients: list[int]) -> Facts:
        """Return what is recorded of the data of these clients."""
        profile = {"samples": len(self.private), "public samples": len(self.public), "clients": len(self.partition)}
        return Facts(
            label_counts=self.label_counts[clients],
            fingerprint=self.fingerprint,
            shape=list(self.private.shape),
            native=list(self.private.native or ()),
            kind=self.private.kind.name,
            profile={**profile, "classes": self.private.classes},
            class_names=self.private.class_names,
        )

    @cached_property
    def label_counts(self) -> Tensor:
        """(N, K) private samples of each client by class."""
        return label_counts(self.private.labels, self.partition, self.private.classes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all of it; how features are standardized follows from it."""
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
    """Everything that all methods of an experiment train and are tested on.

    Attributes:
        private: all private samples, (M, ...).
        public: the public set.
        partitions: by seed and client, the indices of its private samples.
        settings: that it was made with, as plain values.
        skew: kind and levels by which images differ between clients, see `FeatureSkew`; None where they do not.
        names: by seed, what the source calls the clients; empty where a scheme dealt out its samples.
        pretrained: by architecture, weights that its clients start from instead of drawn ones.
    """

    private: LabeledDataset
    public: PublicSet
    partitions: dict[int, dict[int, ClientIndices]]
    settings: dict[str, Any] = field(default_factory=dict)
    skew: tuple[str, int] | None = None
    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    pretrained: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return all of it as tensors and plain values; what `from_plain` takes."""
        private, known = self.private, self.private.vocabulary
        partitions = {seed: {n: tuple(own) for n, own in clients.items()} for seed, clients in self.partitions.items()}
        return {
            **{name: getattr(self, name) for name in ("settings", "skew", "names", "pretrained")},
            "private": {name: getattr(private, name) for name in ("inputs", "labels", "native", "class_names")}
            | {"vocabulary": known and astuple(known)},
            "public": vars(self.public),
            "partitions": partitions,
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "FederatedData":
        """Return the data that `plain` was called on."""
        partitions = {
            seed: {n: ClientIndices(*own) for n, own in clients.items()}
            for seed, clients in values["partitions"].items()
        }
        known = values["private"].get("vocabulary")
        private = LabeledDataset(**{**values["private"], "vocabulary": known and Vocabulary(*known)})
        public = PublicSet(**values["public"])
        return cls(private, public, partitions, *(values[name] for name in ("settings", "skew", "names", "pretrained")))

    @cached_property
    def seeds(self) -> dict[int, SeedData]:
        """The data of each seed's runs."""
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
