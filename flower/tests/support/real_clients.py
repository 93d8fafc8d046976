"""Digits for clients in separate files, the same federation in one process, and a link without Flower."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from scripted import absences

from ktpfl_flower.client.member import Member
from ktpfl_flower.server import federation_file, job
from ktpfl_flower.server.executor import RealFederation
from ktpfl_flower.server.federation_file import FederationFile, Plan
from ktpfl_flower.server.registration import Link
from ktpfl_flower.wire import Packet, from_bytes, to_bytes
from ktpfl_pipeline import in_memory, methods, tracking
from ktpfl_pipeline.analysis.results import FinishedRun
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.errors import InputError
from ktpfl_pipeline.core.executors.serial import SerialExecutor
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.data.sources import digits
from ktpfl_pipeline.runs.run import run_all

COMPARED = ("round", "cohort", "accuracy", "loss", "measures", "traffic", "work")
"""The compared fields of a round's record: all fields except wall times."""
RECIPES: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.05},
    "distillation": {"epochs": 1, "batch_size": 16, "learning_rate": 0.05},
}


def deal_out(
    folder: Path, method: str, architectures: tuple[str, ...] = ("mlp", "cnn_bn", "mlp"), rounds: int = 2, **beside: Any
) -> list[Path]:
    """Write a file and samples for each client, the public set and the server's file; return the clients' files."""
    images = _digits()
    np.savez(folder / "public.npz", images=images.inputs[:40, 0].numpy())
    files = []
    for n, architecture in enumerate(architectures):
        (folder / "clients" / f"{n}").mkdir(parents=True)
        own = images.take(torch.arange(40 + n, len(images), len(architectures)))
        np.savez(folder / "clients" / f"{n}" / "data.npz", images=own.inputs[:, 0].numpy(), labels=own.labels.numpy())
        said = {"client": n, "source": f"npz:clients/{n}/data.npz", "architecture": architecture, "device": "cpu"}
        files.append(folder / f"client-{n}.yml")
        files[-1].write_text(yaml.safe_dump(said))
    server = {"name": "mine", "methods": [method], "patience": 5} | {
        name: value for name, value in beside.items() if name in FederationFile.__dataclass_fields__
    }
    experiment = {
        **{"clients": len(files), "rounds": rounds, "public": {"source": "npz:public.npz", "batch": 30}},
        **{"compute": {"device": "cpu"}, "evaluation": {"adapt_epochs": []}},
        **RECIPES,
        **{name: value for name, value in beside.items() if name not in server},
    }
    (folder / "federation.yml").write_text(yaml.safe_dump({**server, "experiment": experiment}))
    return files


def planned(folder: Path, **changes: Any) -> Plan:
    """Return the plan in the server's file of a folder, with changed settings."""
    plan = federation_file.read(folder / "federation.yml")
    return replace(plan, file=replace(plan.file, **changes))


def run(folder: Path, link: Link, **changes: Any) -> FinishedRun:
    """Run the first method of a folder's server file, as `job.run` does, without report and MLflow."""
    checkpoints = {"enabled": False, "store": "none", "artifacts": "none", "checkpoints": "results"}
    tracking.configure(checkpoints, folder)
    first, *_ = job.jobs(planned(folder, **changes), link)
    (done,) = run_all(first)
    return done


@cache
def _digits() -> LabeledDataset:
    """Return the first digits of scikit-learn, read once because reading their file takes longer than a round."""
    return digits.load("", Path()).take(torch.arange(200))


def in_one_process(
    folder: Path, executor: SerialExecutor | None = None, out: Mapping[int, set[int]] | None = None
) -> tuple[engine.Run, Federation]:
    """Run the federation of `deal_out` with all samples in this process. The clients `out` are absent, by round."""
    file = yaml.safe_load((folder / "federation.yml").read_text())
    asked, (method, *_) = file["experiment"], file["methods"]
    own = [yaml.safe_load(each.read_text()) for each in sorted(folder.glob("client-*.yml"))]
    fed = in_memory.federation(
        f"clients:{folder / 'clients'}",
        clients=None,
        architectures=[each["architecture"] for each in own],
        partition={"scheme": "natural", "validation_share": own[0].get("validation_share", 0.1)},
        image=asked.get("image"),
        public={"source": f"npz:{folder / 'public.npz'}", "batch": 30},
        compute={"device": "cpu"},
        **{name: asked[name] for name in ("training", "distillation", "knowledge") if name in asked},
    )
    fed = replace(
        fed,
        rounds=asked["rounds"],
        executor=executor or SerialExecutor(),
    )
    schedule = engine.Schedule(asked["rounds"], evaluate_every=asked.get("evaluate_every", 1))
    with absences(out or {}):
        return engine.run(methods.create(method), fed, schedule), fed


def check_same(folder: Path, there: FinishedRun, executor: SerialExecutor | None = None) -> Federation:
    """Check history, matrix and each client's own model against the federation in one process, bit for bit."""
    here, fed = in_one_process(folder, executor)
    for ours, theirs in zip(here.history, there.history, strict=True):
        assert {name: getattr(ours, name) for name in COMPARED} == {name: getattr(theirs, name) for name in COMPARED}
    assert (here.coefficients is None) == (there.coefficients is None)
    if here.coefficients is not None and there.coefficients is not None:
        assert here.coefficients[-1].tolist() == there.coefficients
    (method, *_) = yaml.safe_load((folder / "federation.yml").read_text())["methods"]
    for n, params in methods.create(method).personal(here.state, fed.by_id, fed).items():
        kept = torch.load(kept_model(folder, n), weights_only=True)
        assert kept.keys() == params.keys()
        assert all(torch.equal(kept[name], params[name]) for name in kept)
    return fed


def kept_model(folder: Path, n: int, method: str | None = None) -> Path:
    """Return the file with a client's own model after a run of a method, by default the server's file's first one."""
    first = method or yaml.safe_load((folder / "federation.yml").read_text())["methods"][0]
    return folder / "kept" / f"client-{n}" / f"{first}-seed-0" / "model.pt"


Changes = Callable[[str, int, Packet], Packet | None]


class NoLink:
    """A link to clients in this process. Every packet is converted to bytes and back, as with a network.

    Attributes:
        restarts: whether every message finds a restarted client.
        changes: a function of kind, client and reply that returns a changed reply, or None for a late reply.
        seen: the kind, client, packet and reply of each message.
        nodes: the clients by address.
    """

    place, pulse = "here:1", 0.001

    def __init__(self, files: list[Path], restarts: bool = False, changes: Changes | None = None) -> None:
        self.files, self.restarts, self.changes = files, restarts, changes
        self.members = [Member(file) for file in files]
        self.seen: list[tuple[str, int, Packet, Packet]] = []
        self.nodes = {100 + n: n for n in range(len(files))}
        self.sent: dict[str, tuple[int, Packet]] = {}  # messages without a reply
        self.belated: dict[str, Packet] = {}
        self.arrived: dict[str, Packet] = {}

    def said_by(self, n: int) -> list[bytes]:
        """Return everything that a client has sent: values and tensors."""
        return [to_bytes(answer) for _, who, _, answer in self.seen if who == n]

    def addresses(self) -> list[int]:
        self.arrived |= self.belated
        self.belated = {}
        return sorted(self.nodes)

    def send(self, packets: Mapping[int, Packet]) -> list[str]:
        names = [f"{address}-{packet.values['number']}" for address, packet in packets.items()]
        self.sent |= zip(names, packets.items(), strict=True)
        return names

    def replies(self, names: list[str]) -> Iterator[tuple[str, Packet]]:
        for name in [name for name in names if name in self.arrived]:
            yield name, self.arrived.pop(name)
        for name in [name for name in names if name in self.sent]:
            address, packet = self.sent.pop(name)
            n, arriving = self.nodes.get(address), traveled(packet)
            kind = arriving.values.pop("kind")
            if n is not None:
                self.before(kind, n, packet)
            if address not in self.nodes or n is None:
                yield name, Packet({"silent": "node unavailable"})
                continue
            if self.restarts:
                self.members[n] = Member(self.files[n])
            answer = self.answer(kind, n, arriving)
            self.seen.append((kind, n, packet, answer))
            changed = answer if self.changes is None else self.changes(kind, n, answer)
            if changed is None:
                self.belated[name] = answer
            else:
                yield name, arrived(changed)

    def before(self, kind: str, n: int, packet: Packet) -> None:
        """Do nothing before a message is delivered. Subclasses can inject faults here."""

    def answer(self, kind: str, n: int, packet: Packet) -> Packet:
        return self.members[n].answer(kind, packet)

    def stop(self, n: int) -> None:
        """End a client's process."""
        self.nodes = {address: other for address, other in self.nodes.items() if other != n}

    def start(self, n: int) -> None:
        """Start a client's process at a new address."""
        self.members[n] = Member(self.files[n])
        self.nodes[max(self.nodes, default=100) + 1] = n


def met_federation(folder: Path, link: NoLink) -> RealFederation:
    """Return the federation of a folder's clients, which have only registered."""
    return job.jobs(planned(folder), link)[0].federation(0, None)[0]


def traveled(packet: Packet) -> Packet:
    """Return a packet after conversion to bytes and back."""
    return from_bytes(to_bytes(packet))


def arrived(packet: Packet) -> Packet:
    """Return a reply as the server's `app` receives it."""
    try:
        return traveled(packet)
    except InputError as error:
        return Packet({"malformed": str(error)})
