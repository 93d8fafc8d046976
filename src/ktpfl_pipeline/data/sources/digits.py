"""The source `digits`: the handwritten digits of scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import check_installed
from ktpfl_pipeline.data.sources.files import check_no_argument
from ktpfl_pipeline.data.sources.photographs import AS_THEY_ARE, Reading


def load(argument: str, folder: Path, reading: Reading = AS_THEY_ARE) -> LabeledDataset:
    """Return the 1,797 images of scikit-learn's digits, (1797, 1, 8, 8) uint8. Values 0 to 16 are scaled to 0 to 255.

    The file is read without importing scikit-learn, because the import would take most of a run's time before training.
    Raises InputError if scikit-learn is not installed, or an argument is given.
    """
    check_no_argument(argument)
    check_installed("The source digits", "scikit-learn")
    package = find_spec("sklearn")
    assert package and package.origin
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", np.float64, delimiter=",")
    images = np.rint(table[:, :64] * (255 / 16)).astype(np.uint8)
    labels = torch.from_numpy(table[:, 64].astype(np.int64))
    return LabeledDataset(torch.from_numpy(images).reshape(-1, 1, 8, 8), labels, class_names=tuple("0123456789"))
