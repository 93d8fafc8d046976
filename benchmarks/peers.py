"""The steps of other people's code next to ours: after the same batches from the same weights, are the weights equal?

    python benchmarks/peers.py run --pfllib CHECKOUT --htfllib CHECKOUT [--only fedavg,fd]
    python benchmarks/peers.py table        writes the table of benchmarks/results/external/peers.md

CHECKOUT is a folder with TsingZ0/PFLlib or TsingZ0/HtFLlib, which are not part of this project. Their servers and
clients run in float64 on four of their MNIST clients (`mnist_20_clients.npz` in the folder KTPFL_REAL_DATA or in
data/01_raw, or else random images). Batches come in our order, models stay in memory, and nothing is evaluated. A
method that differs runs a second time with changes (`peer_changes.py`) to the lines that differ, so the rest is
compared too.
"""

import argparse
import ast
import copy
import importlib
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import peer_changes as change
import torch
import torch.nn.functional as F
from measure import RAW, RESULTS
from peer_changes import BATCH, CLASSES, EPOCHS, RATE, Peer
from studies import drawn, named, overwrite, read, write
from torch import Tensor, nn

from ktpfl_pipeline import methods
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, LocalTraining
from ktpfl_pipeline.core.weights import Params

FILE, PAGE = (RESULTS / "external" / f"peers.{kind}" for kind in ("csv", "md"))
CLIENTS, SIZES, SAME_SIZES = (0, 4, 6, 13), (60, 40, 80, 50), (50, 50, 50, 50)
"""Clients of the file, their numbers of training samples, and equal numbers for code that averages without weights."""
HEADING = "## The steps of other people's code\n"
ROUNDS, WIDTH, EQUAL = 3, 32, 1e-5
BUILT = {"small": "Net(4)", "large": "Net(8)", "norm": "Net(4, True)"}
Values = dict[str, list[Tensor]]
"""Tensors by their place in the other code."""


class Net(nn.Module):
    """Two convolutions and a hidden layer, and BatchNorm if `norm`. PFLlib finds head and BatchNorm by these names."""

    def __init__(self, channels: int, norm: bool = False) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, channels, 5), nn.Conv2d(channels, 8, 5)
        self.bn1 = nn.BatchNorm2d(channels) if norm else nn.Identity()
        self.fc1, self.fc = nn.Linear(8 * 4 * 4, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        logits: Tensor = self.fc(self.fc1(x.flatten(1)).relu())
        return logits


@dataclass(frozen=True)
class Case:
    """A method in both codes, with settings that mean the same."""

    project: str
    module: str  #: client<module>.py and server<module>.py
    server: str  #: the class
    #: what is compared: the tensors of our state, by their place in the other code, where # is the client
    held: Mapping[str, Callable[[Any, int], Params]]
    options: Mapping[str, Any] = field(default_factory=dict)  #: hyperparameters of ours
    arguments: Mapping[str, Any] = field(default_factory=dict)  #: those of the other code
    changes: tuple[Callable[[Peer], None], ...] = ()
    same_sizes: bool = False  #: whether clients have equal sizes in the run with changes
    split: bool = False  #: whether PFLlib takes a model in two parts
    architecture: str = "small"
    aligned: Callable[[Peer], None] = lambda peer: None
    clip: float | None = None

    def places(self, fed: Federation) -> Iterator[tuple[str, int, Callable[[Any, int], Params]]]:
        """Yield each place in the other code, with its client and our tensors."""
        for place, of in self.held.items():
            yield from ((place.replace("#", str(n)), n, of) for n in (fed.by_id if "#" in place else [0]))

    def values(self, state: Any, fed: Federation) -> Values:
        """Return our tensors. Before the first round, a state may have no models of clients."""
        found: Values = {}
        for place, n, of in self.places(fed):
            with suppress(KeyError):
                found[place] = [value for value in of(state, n).values() if value.is_floating_point()]
        return found


def part(params: Params, *prefixes: str) -> Params:
    """Return the tensors whose names begin with a prefix."""
    return {name: value for name, value in params.items() if name.startswith(prefixes)}


def own(state: Any, n: int) -> Params:
    model: Params = state.models[n]
    return model


def common(state: Any, n: int) -> Params:
    model: Params = state.common
    return model


def added_head(state: Any, n: int) -> Params:
    """Return client n's head of FedRoD, which starts with zeros."""
    return state.models.get(n) or {k: torch.zeros_like(v) for k, v in part(state.common, "fc.").items()}


HEAD, MODEL = {"Server head": lambda state, n: state.head}, {"Client_# model": own}
BOTH, BESIDE = {"global_model": common, "clients # model": own}, {"global_model": common, "clients # model_per": own}
PART = {"global_model": lambda state, n: part(state.model, "conv", "fc1")}
RESPONSE = {
    "Server global_model": lambda state, n: {**state.extractor, **state.head},
    "Client_# model": lambda state, n: part(state.models[n], "own.", "head."),
    "Client_# proj": lambda state, n: part(state.models[n], "projector:"),
}
MENTEE = {**MODEL, "Client_# global_model": common, "Client_# W_h": lambda state, n: state.maps[n]}
WIDE, SMALL = {"dimension": WIDTH}, {"dimension": WIDTH, "common": "small"}
SERVER = {"server_epochs": 20, "server_learning_rate": RATE}
FEW = {**WIDE, "rate": RATE, "steps": 20}
ADAPTIVE = {"alpha": 0.5, "alpha_rate": None}
PULLED = {"mu": 0.5, "plocal_epochs": EPOCHS}
PROTOTYPES = (change.late_prototypes, change.largest_distance, change.full_batch)
CASES = {
    "fedavg": Case("PFLlib", "avg", "FedAvg", {"global_model": lambda state, n: state.model}),
    "fedper": Case("PFLlib", "per", "FedPer", BOTH, split=True),
    "fedrep": Case("PFLlib", "rep", "FedRep", BOTH, {}, {"local_epochs": 1}, split=True, aligned=change.head_and_body),
    "fedbn": Case("PFLlib", "bn", "FedBN", {"clients # model": own}, architecture="norm"),
    "ditto": Case("PFLlib", "ditto", "Ditto", BESIDE, {"coupling": 0.5}, PULLED),
    "apfl": Case("PFLlib", "apfl", "APFL", BESIDE, ADAPTIVE, {"alpha": 0.5}, (change.mixed_gradient,), True),
    "fedbabu": Case("PFLlib", "babu", "FedBABU", PART, split=True),
    "fedala": Case("PFLlib", "ala", "FedALA", BOTH, {"first_epochs": 11}, aligned=change.same_draws),
    "fedrod": Case("PFLlib", "rod", "FedROD", {"global_model": common, "clients # head": added_head}, split=True),
    "lg_fedavg": Case("HtFLlib", "lg", "LG_FedAvg", HEAD | MODEL, WIDE),
    "fd": Case("HtFLlib", "fd", "FD", MODEL, changes=(change.others_probabilities,)),
    "fedproto": Case("HtFLlib", "proto", "FedProto", MODEL, WIDE, changes=(change.late_prototypes,)),
    "fedgh": Case("HtFLlib", "gh", "FedGH", HEAD | MODEL, FEW, SERVER, (change.full_batch,)),
    "fedkd": Case(
        *("HtFLlib", "kd", "FedKD", MENTEE, {**SMALL, "start": 1.0, "end": 1.0}, {"mentee_learning_rate": RATE}),
        *((change.constant_divisors, change.uncompressed), True),
        clip=10.0,
    ),
    "fedtgp": Case(
        "HtFLlib", "tgp", "FedTGP", {**MODEL, "Server TGP": lambda state, n: state.generator}, FEW, SERVER, PROTOTYPES
    ),
    "fedmrl": Case("HtFLlib", "mrl", "FedMRL", RESPONSE, SMALL, {}, (change.kept_projector,), True),
    "fml": Case(
        *("HtFLlib", "fml", "FML", {**MODEL, "Server global_model": common}, {"common": "small"}),
        *({"alpha": 0.5, "beta": 0.5}, (change.constant_teachers,), True),
        clip=10.0,
    ),
}


def federation(case: Case, sizes: tuple[int, ...]) -> Federation:
    """Return the clients for our code: the first training images of each client in the file."""
    file, clients = RAW / "mnist_20_clients.npz", []
    stored = np.load(file) if file.exists() else None
    names = ("small", "large") if case.project == "HtFLlib" else (case.architecture,) * 2
    for place, (n, size) in enumerate(zip(CLIENTS, sizes, strict=True)):
        if stored is None:
            images, labels = np.random.default_rng(n).integers(0, 256, (size, 28, 28)), np.arange(size) * n % CLASSES
        else:
            rows = np.flatnonzero((stored["clients"] == n) & ~stored["test"])[:size]
            images, labels = stored["images"][rows], stored["labels"][rows]
        samples = LabeledDataset(torch.tensor(images, dtype=torch.uint8)[:, None], torch.tensor(labels))
        clients.append(Client(place, names[place % 2], samples, samples, samples))
    training = LocalTraining(epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, clip=case.clip)
    compute, public = Compute("cpu", dtype="float64"), clients[0].train.inputs[:1]
    build = {name: lambda made=made: eval(made) for name, made in BUILT.items()}
    return Federation(
        *(tuple(clients), public, 1, CLASSES, lambda name: build[name]()),
        rounds=ROUNDS,
        training=training,
        compute=compute,
    )


@contextmanager
def imported(path: Path, fed: Federation) -> Iterator[Peer]:
    """Import a checkout inside the block; its data and files are in memory."""
    before, peer = set(sys.modules), Peer(fed, {}, importlib.import_module)
    sys.modules.setdefault("h5py", types.ModuleType("h5py"))  # used only for results on disk
    sys.path.insert(0, str(path / "system"))
    torch.set_default_dtype(torch.float64)
    try:
        peer.module("utils.data_utils").read_client_data = lambda _, n, **__: [*zip(*peer.data(n), strict=True)]
        base = peer.module("flcore.clients.clientbase")
        base.Client.load_train_data = lambda client, size=None: peer.loader(client)
        base.save_item = lambda item, role, name, _=None: peer.store.update({(role, name): copy.deepcopy(item)})
        base.load_item = lambda role, name, _=None: copy.deepcopy(peer.store.get((role, name)))
        with redirect_stdout(StringIO()), warnings.catch_warnings(action="ignore"):
            yield peer
    finally:
        torch.set_default_dtype(torch.float32)
        sys.path.remove(str(path / "system"))
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("flcore", "utils"):
                del sys.modules[name]


def defaults(path: Path) -> dict[str, Any]:
    """Return the arguments of the other program with their defaults."""
    found = {}
    for call in ast.walk(ast.parse((path / "system" / "main.py").read_text("utf-8"))):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            (default,) = (each.value for each in call.keywords if each.arg == "default")
            found[ast.literal_eval(call.args[-1]).lstrip("-")] = ast.literal_eval(default)
    return found


class Finished(Exception):
    """All rounds are done."""


def theirs(path: Path, case: Case, fed: Federation, starts: Values, changed: bool) -> list[Values]:
    """Run the other code from our weights; return its tensors after each round."""
    args = types.SimpleNamespace(**defaults(path))
    vars(args).update(num_clients=len(CLIENTS), local_learning_rate=RATE, batch_size=BATCH, local_epochs=EPOCHS)
    vars(args).update(device="cpu", global_rounds=ROUNDS, feature_dim=WIDTH, sub_feature_dim=WIDTH)
    vars(args).update(models=[BUILT[name] for name in fed.models()], global_model=BUILT["small"], **case.arguments)
    snapshots = list[Values]()
    with imported(path, fed) as peer:
        layers = peer.module("flcore.trainmodel.models")
        layers.Net = Net
        if case.project == "PFLlib":
            args.model = fed.build(case.architecture)
            args.model.load_state_dict(fed.initial_model(case.architecture), strict=False)
            if case.split:
                head, args.model.fc = args.model.fc, nn.Identity()
                args.model = layers.BaseHeadSplit(args.model, head)
        args.algorithm = case.server
        peer.server = getattr(peer.module(f"flcore.servers.server{case.module}"), case.server)(args, 0)
        for place, values in starts.items():
            for there, value in zip(peer.values(place), values, strict=False):  # a body may start with a head
                there.copy_(value)
        for each in (case.aligned, *(case.changes if changed else ())):
            each(peer)

        def select() -> Any:
            if peer.t:
                places = [place for place, *_ in case.places(fed)]
                snapshots.append({place: [value.clone() for value in peer.values(place)] for place in places})
            if peer.t == ROUNDS:
                raise Finished
            peer.t += 1
            return peer.server.clients

        peer.server.select_clients = select
        peer.server.evaluate = peer.server.evaluate_personalized = lambda: None
        with suppress(Finished):
            peer.server.train()
    return snapshots


def differences(name: str, path: Path, changed: bool) -> list[float]:
    """Return the largest difference of any tensor after each round."""
    case = CASES[name]
    fed = federation(case, SAME_SIZES if changed and case.same_sizes else SIZES)
    method = methods.create(name, case.options)
    state, found = method.init(fed), list[float]()
    for t, there in enumerate(theirs(path, case, fed, case.values(state, fed), changed), 1):
        state, _ = method.round(state, list(fed.by_id), t, fed)
        here = case.values(state, fed)
        pairs = [pair for place, values in there.items() for pair in zip(here[place], values, strict=True)]
        found.append(float(torch.stack([(a - b).abs().max() for a, b in pairs]).max()))  # NaN if one is
    return found


def run(paths: Mapping[str, Path], names: list[str]) -> None:
    """Compare methods, and keep the differences; those of other methods stay."""
    rows = [row for row in read(FILE) if row["method"] not in names]
    for name in names:
        case, path = CASES[name], paths[CASES[name].project]
        commit = subprocess.check_output(["git", "-C", path, "rev-parse", "--short", "HEAD"], text=True).strip()
        for changed in (False, True):
            found = differences(name, path, changed)
            about = {"method": name, "code": f"{case.project} {commit}", "changed": str(changed)}
            rows += [{**about, "round": str(t), "largest_difference": f"{x:.1e}"} for t, x in enumerate(found, 1)]
            print(name, "changed" if changed else "as it is", found, flush=True)
            if all(value <= EQUAL for value in found):
                break
    overwrite(FILE, sorted(rows, key=lambda row: list(CASES).index(row["method"])))


def table() -> str:
    rows, lines = pd.read_csv(FILE), [["method", "code", "as it is", "changed", "changes"]]
    for name, own_rows in rows.groupby("method", sort=False):
        case = CASES[str(name)]
        largest = own_rows.groupby("changed")["largest_difference"].agg(lambda each: each.max(skipna=False))
        texts = [f"{largest[key]:.0e}".replace("nan", "NaN") if key in largest else "–" for key in (False, True)]
        words = [str(each.__doc__) for each in case.changes] + ["Clients have equal weights."] * case.same_sizes
        lines.append([named(str(name)), own_rows["code"].iloc[0], *texts, " ".join(words)])
    return drawn(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--pfllib", type=Path)
    parser.add_argument("--htfllib", type=Path)
    parser.add_argument("--only", default=",".join(CASES))
    asked = parser.parse_args()
    if asked.command == "table":
        write(PAGE, {HEADING: table()})
    else:
        run({"PFLlib": asked.pfllib, "HtFLlib": asked.htfllib}, asked.only.split(","))


if __name__ == "__main__":
    main()
