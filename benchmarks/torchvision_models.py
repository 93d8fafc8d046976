"""Every classification model of torchvision: built for images of 64 x 64 and trained by one step, or refused.

`nice python benchmarks/torchvision_models.py docs/project/torchvision_models.md` writes the table, model by model, and
continues a table that was not finished. It takes several minutes on two cores. The largest model needs 10 GB of memory.
"""

import gc
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F

from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.models import build, zoo

SHAPE, CLASSES, IMAGES = (3, 64, 64), 10, 2
HEAD = f"""---
orphan: true
---

# The models of torchvision at 64 pixels

Each classification model of torchvision {{version}} was built as `torchvision:<name>` for images of 3 × 64 × 64 in
{CLASSES} classes. *Taken*: it took one step of SGD on {IMAGES} images, and its weights stayed finite. *Refused*: it was
not trained, for the reason given. Written by
[`benchmarks/torchvision_models.py`](../../benchmarks/torchvision_models.py).

| model | parameters | one training step |
| --- | ---: | --- |
"""


def row(name: str) -> str:
    """Return the table's row of a model, and free the model."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # building a model must not warn
            model = build(f"torchvision:{name}", SHAPE, CLASSES)
    except InputError as error:
        return f"| `{name}` | | refused: {error} |"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    F.cross_entropy(model(torch.randn(IMAGES, *SHAPE)), torch.arange(IMAGES)).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    number = sum(parameter.numel() for parameter in model.parameters())
    return f"| `{name}` | {number:,} | {'taken' if finite else 'weights that are not finite'} |"


def main(file: Path) -> None:
    """Append the missing rows of the table to `file`."""
    import torchvision

    torch.set_num_threads(1)
    head = HEAD.format(version=torchvision.__version__.partition("+")[0])
    if not file.exists():
        file.write_text(head, encoding="utf-8")
    done = file.read_text(encoding="utf-8")
    for name in zoo.known_names("torchvision"):
        if f"| `{name}` |" not in done:
            line = row(name)
            print(line, flush=True)
            with file.open("a", encoding="utf-8") as out:
                out.write(line + "\n")
            gc.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
