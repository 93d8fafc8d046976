"""Small images and labels, and a way to draw them."""

from pathlib import Path

import numpy as np
from PIL import Image

NUMBERS = np.random.default_rng(0)
GREY = NUMBERS.integers(0, 256, (4, 6, 5)).astype(np.uint8)
RGB = NUMBERS.integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
LABELS = np.array([0, 2, 2, 5])


def draw(path: Path, array: np.ndarray, mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(path)
