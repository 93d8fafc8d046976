"""Write an example federation: ``python -m ktpfl_flower.example``.

It writes handwritten digits, partitioned so that clients differ in their classes, a file for each client, the server's
file, and public images.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch

from ktpfl_pipeline.data.partition import partition
from ktpfl_pipeline.data.sources import digits

NAMES = ("anna", "bert", "carla", "dan", "eva")
ARCHITECTURES = ("lenet", "cnn", "mlp")
PUBLIC = 400
CLIENT = """\
client: {number}                # a different number for each client, from 0
name: {name}               # its name in reports
source: npz:{name}.npz     # its samples, any source; paths start at this file's folder
class_names: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]  # what labels mean, the same list at all clients
architecture: {architecture}
image: {{channels: 1, size: 28}}
"""
SERVER = """\
name: real_clients        # of the results, the report and the runs in MLflow
project: {project}        # where data/, mlflow.db and conf/ are, from this file's folder
methods: [kt_pfl, fedmd, local]
patience: 600             # seconds in which all clients must have joined
deadline: 600             # seconds in which each phase of a round is answered; raise it for slow or busy machines
experiment:               # as a section of conf/, without what only clients can decide
  clients: {clients}
  rounds: 3
  image: {{channels: 1, size: 28}}
  public: {{source: "npz:public.npz", batch: 200}}
  training: {{epochs: 2, batch_size: 32, learning_rate: 0.05}}
  distillation: {{epochs: 1, batch_size: 64, learning_rate: 0.05}}
"""


def main(arguments: list[str] | None = None) -> None:
    """Write the files, and print the commands that use them."""
    parser = argparse.ArgumentParser("python -m ktpfl_flower.example", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("data/01_raw/real_clients"), help="where the files are written"
    )
    parser.add_argument("--clients", type=int, choices=range(2, 1 + len(NAMES)), default=2)
    asked = parser.parse_args(arguments)
    write(asked.folder, asked.clients)
    run = f"python -m ktpfl_flower.run {asked.folder / 'federation.yml'} here"
    join = "python -m ktpfl_flower.join {} --insecure --superlink 127.0.0.1:8000"
    print(f"Start each client and the run in separate terminals:\n\n{run}")  # noqa: T201
    for name in NAMES[: asked.clients]:
        print(join.format(asked.folder / f"{name}.yml"))  # noqa: T201


def write(folder: Path, clients: int) -> None:
    """Write the server's file and its public images, and a file and samples for each client, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = digits.load("", folder)
    np.savez(folder / "public.npz", images=found.inputs[:PUBLIC, 0].numpy())
    rest = torch.arange(PUBLIC, len(found))
    dealt = partition(found.labels, clients, "dirichlet", 0, alpha=0.5, pool=rest)
    for number, own in dealt.items():
        taken, name = found.take(torch.cat(own)), NAMES[number]
        np.savez(folder / f"{name}.npz", images=taken.inputs[:, 0].numpy(), labels=taken.labels.numpy())
        model = ARCHITECTURES[number % len(ARCHITECTURES)]
        (folder / f"{name}.yml").write_text(CLIENT.format(number=number, name=name, architecture=model))
    project = os.path.relpath(Path.cwd(), folder.resolve())
    (folder / "federation.yml").write_text(SERVER.format(clients=clients, project=project))


if __name__ == "__main__":
    main()
