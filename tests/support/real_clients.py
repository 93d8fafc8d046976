"""Digits dealt out to clients with files of their own, the same federation in one process, a link without Flower."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from ktpfl_pipeline import in_memory, methods
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.data.sources import digits
from ktpfl_pipeline.flower.member import Member
from ktpfl_pipeline.flower.wire import Packet, dumped, loaded

COMPARED = ("round", "cohort", "accuracy", "loss", "measures", "traffic", "work")
"""Of a round's record: all but its time."""
RECIPES: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.05},
    "distillation": {"epochs": 1, "batch_size": 16, "learning_rate": 0.05},
}


def deal_out(
    folder: Path, method: str, architectures: tuple[str, ...] = ("mlp", "cnn_bn", "mlp"), rounds: int = 2, **beside: Any
) -> list[Path]:
    """Write a file and samples for each client, the public set and the server's file; return the clients' files."""
    images = digits.load("", folder).take(torch.arange(200))
    np.savez(folder / "public.npz", images=images.inputs[:40, 0].numpy())
    files = []
    for n, architecture in enumerate(architectures):
        (folder / "clients" / f"{n}").mkdir(parents=True)
        own = images.take(torch.arange(40 + n, len(images), len(architectures)))
        np.savez(folder / "clients" / f"{n}" / "data.npz", images=own.inputs[:, 0].numpy(), labels=own.labels.numpy())
        said = {"client": n, "source": f"npz:clients/{n}/data.npz", "architecture": architecture, "device": "cpu"}
        files.append(folder / f"client-{n}.yml")
        files[-1].write_text(yaml.safe_dump(said))
    public = {"source": "npz:public.npz", "batch": 30}
    server = {"method": method, "clients": len(files), "rounds": rounds, "public": public, "device": "cpu"}
    (folder / "federation.yml").write_text(yaml.safe_dump({**server, **RECIPES, **beside}))
    return files


def in_one_process(folder: Path) -> tuple[engine.Run, Federation]:
    """Run the federation of `deal_out` as always, with all samples in this process."""
    asked = yaml.safe_load((folder / "federation.yml").read_text())
    files = sorted(folder.glob("client-*.yml"))
    fed = in_memory.federation(
        f"clients:{folder / 'clients'}",
        clients=None,
        architectures=[yaml.safe_load(file.read_text())["architecture"] for file in files],
        partition="natural",
        image=asked.get("image"),
        public={"source": f"npz:{folder / 'public.npz'}", "batch": 30},
        compute={"device": "cpu"},
        **{name: asked[name] for name in ("training", "distillation")},
    )
    fed = replace(fed, rounds=asked["rounds"])
    return engine.run(methods.create(asked["method"]), fed, engine.Schedule(asked["rounds"])), fed


def check_same(folder: Path, there: engine.Run) -> None:
    """Check history, matrix and each client's own model against the federation in one process, bit for bit."""
    here, fed = in_one_process(folder)
    for ours, theirs in zip(here.history, there.history, strict=True):
        assert {name: getattr(ours, name) for name in COMPARED} == {name: getattr(theirs, name) for name in COMPARED}
    assert (here.coefficients is None) == (there.coefficients is None)
    if here.coefficients is not None and there.coefficients is not None:
        assert torch.equal(here.coefficients, there.coefficients)
    asked = yaml.safe_load((folder / "federation.yml").read_text())
    for n, params in methods.create(asked["method"]).personal(here.state, fed.by_id, fed).items():
        kept = torch.load(folder / "kept" / f"client-{n}" / "model.pt", weights_only=True)
        assert kept.keys() == params.keys()
        assert all(torch.equal(kept[name], params[name]) for name in kept)


class NoLink:
    """Members in this process: every packet goes through its bytes, as on a wire.

    Attributes:
        anew: whether every message finds a new process.
        changes: what becomes of an answer on its way, given its kind, its client and itself.
        seen: kind, client, packet and answer of each message.
    """

    def __init__(
        self, files: list[Path], anew: bool = False, changes: Callable[[str, int, Packet], Packet] | None = None
    ) -> None:
        self.files, self.anew, self.changes = files, anew, changes
        self.members = [Member(file) for file in files]
        self.seen: list[tuple[str, int, Packet, Packet]] = []

    def addresses(self, wanted: int) -> list[int]:
        return [100 + n for n in range(len(self.members))]

    def ask(self, kind: str, packets: Mapping[int, Packet]) -> Iterator[tuple[int, Packet]]:
        for address, packet in packets.items():
            n = address - 100
            if self.anew:
                self.members[n] = Member(self.files[n])
            answer = self.members[n].answer(kind, travelled(packet))
            answer = answer if self.changes is None else self.changes(kind, n, answer)
            self.seen.append((kind, n, packet, answer))
            yield address, travelled(answer)


def travelled(packet: Packet) -> Packet:
    """Return what arrives of a packet."""
    tensors = {name: loaded(*dumped(tensor)) for name, tensor in packet.tensors.items()}
    return Packet(json.loads(json.dumps(packet.values)), tensors)
