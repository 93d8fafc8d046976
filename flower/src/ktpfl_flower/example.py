"""Write a federation to try: ``python -m ktpfl_flower.example``.

Handwritten digits, dealt out so that each client has mostly labels of its own, a file for each client, and the public
images of the server. One's own clients have files of the same form.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from ktpfl_pipeline.data.partition import partition
from ktpfl_pipeline.data.sources import digits

NAMES = ("anna", "bert", "carla", "dan", "eva")
ARCHITECTURES = ("lenet", "cnn", "mlp")
PUBLIC = 400
FILE = """\
client: {number}                # another number for each client, from 0
name: {name}               # what the report calls it
source: npz:{name}.npz     # its samples, any source of images; paths start at this file's folder
architecture: {architecture}
image: {{channels: 1, size: 28}}
"""


def main(arguments: list[str] | None = None) -> None:
    """Write the files and say what they are for."""
    parser = argparse.ArgumentParser("python -m ktpfl_flower.example", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data/01_raw/real_clients"), help="where to")
    parser.add_argument("--clients", type=int, choices=range(2, 1 + len(NAMES)), default=2)
    asked = parser.parse_args(arguments)
    write(asked.folder, asked.clients)
    join = "python -m ktpfl_flower.join {} --insecure --superlink 127.0.0.1:8000"
    more = f" --params real_clients.clients={asked.clients}" if asked.clients != 2 else ""
    print(f"The server, and each client in a terminal of its own:\n\nkedro run --pipelines=compare_real_clients{more}")  # noqa: T201
    for name in NAMES[: asked.clients]:
        print(join.format(asked.folder / f"{name}.yml"))  # noqa: T201


def write(folder: Path, clients: int) -> None:
    """Write public images, and samples and a file of each client, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = digits.load("", folder)
    np.savez(folder / "public.npz", images=found.inputs[:PUBLIC, 0].numpy())
    rest = torch.arange(PUBLIC, len(found))
    dealt = partition(found.labels, clients, "dirichlet", 0, alpha=0.5, pool=rest)
    for number, own in dealt.items():
        taken, name = found.take(torch.cat(own)), NAMES[number]
        np.savez(folder / f"{name}.npz", images=taken.inputs[:, 0].numpy(), labels=taken.labels.numpy())
        model = ARCHITECTURES[number % len(ARCHITECTURES)]
        (folder / f"{name}.yml").write_text(FILE.format(number=number, name=name, architecture=model))


if __name__ == "__main__":
    main()
