"""What the data box hands to every method: private images, the public set, and who owns what, for each seed."""

import hashlib
from dataclasses import dataclass

from torch import Tensor

from ktpfl_pipeline.core.dataset import LabelledDataset
from ktpfl_pipeline.data.partition import ClientIndices


@dataclass(frozen=True, eq=False)
class PublicSet:
    """Unlabelled images that no client owns.

    Attributes:
        images: (M, C, H, W) uint8.
        indices: by seed, which of the images are public, (m,) int64.
    """

    images: Tensor
    indices: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Everything that all methods of an experiment train and are tested on.

    Attributes:
        private: all private images, (M, C, H, W) uint8, with labels.
        public: the public set.
        partitions: by seed and client, the indices of its private images.
    """

    private: LabelledDataset
    public: PublicSet
    partitions: dict[int, dict[int, ClientIndices]]

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return int(self.private.labels.max()) + 1

    def public_images(self, seed: int) -> Tensor:
        """Return the public images of one seed, (m, C, H, W) uint8."""
        return self.public.images[self.public.indices[seed]]

    def fingerprint(self, seed: int) -> str:
        """Return a hash of everything that a run with this seed sees."""
        digest = hashlib.sha256()
        for tensor in (self.private.images, self.private.labels, self.public_images(seed)):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.contiguous().numpy().data)
        for client, own in sorted(self.partitions[seed].items()):
            for split in (own.train, own.validation, own.test):
                digest.update(f"{client}:{len(split)}".encode())
                digest.update(split.contiguous().numpy().data)
        return digest.hexdigest()[:16]
