"""What `peers.py` changes in PFLlib and HtFLlib while they run: batches in our order, and lines that differ."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ktpfl_pipeline.core import kinds
from ktpfl_pipeline.core.client.sgd import batches
from ktpfl_pipeline.core.federation import Federation

ROUNDS, EPOCHS, BATCH, RATE, CLASSES = 3, 2, 10, 0.05, 10


@dataclass
class Loader:
    """A client's batches; each pass over them takes its order from the next of the streams."""

    data: tuple[Tensor, Tensor]
    streams: Iterator[torch.Generator]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of each batch."""
        for batch in batches(len(self.data[1]), BATCH, next(self.streams)):
            yield self.data[0][batch], self.data[1][batch]


@dataclass
class Peer:
    """The other code while it runs."""

    fed: Federation
    store: dict[tuple[str, ...], Any]  #: what HtFLlib writes to disk, by role and name
    module: Callable[[str], Any]  #: returns a module of the checkout
    server: Any = None
    t: int = 0  #: the round
    parts: tuple[str, ...] = ("",) * 9  #: the part in our names of streams, for each pass of a training

    def values(self, name: str) -> list[Tensor]:
        """Return the numbers of ``clients 0 model`` of a server, or of ``Server head`` in the store."""
        found = self.store.get(tuple(name.split())) or reduce(
            lambda place, part: place[int(part)] if part.isdecimal() else getattr(place, part),
            name.split(),
            self.server,
        )
        return [value for value in found.state_dict().values() if value.is_floating_point()]

    def data(self, n: int) -> tuple[Tensor, Tensor]:
        train = self.fed.by_id[n].train
        return kinds.of(train.inputs).to_float(train.inputs, torch.float64), train.labels

    def loader(self, client: Any, size: int | None = None) -> Loader:
        """Return a client's batches in our order."""
        names = {part: filter(None, [part]) for part in self.parts}
        streams = {part: self.fed.stream("private shuffle", self.t, client.id, *name) for part, name in names.items()}
        return Loader(self.data(client.id), iter([streams[part] for part in self.parts]))


# Changes: what replaces lines of the other code. Their docstrings are on the page.


def full_batch(peer: Peer) -> None:
    """The server takes all uploads at once, not ten by ten."""
    peer.server.batch_size = 10**6


def late_prototypes(peer: Peer) -> None:
    """A client's class means are those of its model after training."""
    collect = peer.module("flcore.clients.clienttgp").clientTGP.collect_protos
    for client in peer.server.clients:
        client.train = lambda client=client, train=client.train: (train(), collect(client))


def largest_distance(peer: Peer) -> None:
    """The margin is the largest distance between two classes."""

    def receive(before: Callable[[], None] = peer.server.receive_protos) -> None:
        before()
        uploads = peer.server.uploaded_protos
        means = [torch.stack([p for p, k in uploads if k == own]).mean(dim=0) for own in {k for _, k in uploads}]
        peer.server.max_gap = torch.pdist(torch.stack(means)).max()

    peer.server.receive_protos = receive


def constant_teachers(peer: Peer) -> None:
    """Divergences are sums over classes, without a gradient through the teacher."""
    for client in peer.server.clients:
        client.KL = lambda x, teacher: F.kl_div(x, teacher.detach(), reduction="batchmean")


@dataclass
class Quotient:
    """A loss whose divisor has no gradient."""

    value: Tensor

    def __truediv__(self, divisor: Tensor) -> Tensor:
        return self.value / divisor.detach()


def constant_divisors(peer: Peer) -> None:
    """No gradient passes through teachers or divisors; the distance of features counts once."""
    for client in peer.server.clients:
        client.KL = lambda x, teacher: Quotient(F.kl_div(x, teacher.detach()))
        client.MSE = lambda x, target: Quotient(0.5 * F.mse_loss(x, target))  # both losses have it


def uncompressed(peer: Peer) -> None:
    """Nothing is compressed."""
    for module in map(peer.module, ("flcore.clients.clientkd", "flcore.servers.serverkd")):
        module.recover = lambda kept: kept
        module.decomposition = lambda items, _: {
            name: value.detach().numpy() if isinstance(value, Tensor) else value for name, value in items
        }


def kept_projector(peer: Peer) -> None:
    """A client keeps its trained projector."""
    module = peer.module("flcore.clients.clientmrl")
    module.load_item = lambda role, name, folder, load=module.load_item: (
        peer.store[role, name] if name == "proj" else load(role, name, folder)
    )


def others_probabilities(peer: Peer) -> None:
    """Targets are the other clients' mean probabilities; without such a client there is no target."""
    module, now, uploads = peer.module("flcore.clients.clientfd"), [""], dict[str, Any]()
    mean, load = module.agg_func, module.load_item
    module.agg_func = lambda seen: mean({k: [z.softmax(dim=0) for z in each] for k, each in seen.items()})

    def loaded(role: str, name: str, folder: str = "") -> Any:
        now[0] = role if name == "model" else now[0]  # whose turn it is
        if name != "global_logits":
            return load(role, name, folder)
        others, nothing = [means for client, means in uploads.items() if client != now[0]], [torch.zeros(CLASSES)]
        taught = {k: [means[k] for means in others if k in means] or nothing for k in range(CLASSES)}
        return {k: torch.stack(each).mean(dim=0) for k, each in taught.items()} if others else None

    module.load_item = loaded
    peer.server.receive_logits = lambda: uploads.update({c.role: load(c.role, "logits") for c in peer.server.clients})


def mixed_gradient(peer: Peer) -> None:
    """The own model is trained with the gradient of the mixture, and kept; α has no penalty."""

    def train(client: Any) -> None:
        models = client.model_per, client.model, copy.deepcopy(client.model)
        v, w, mixture = ([*model.parameters()] for model in models)
        loader = client.load_train_data()
        for x, y in (batch for _ in range(EPOCHS) for batch in loader):
            for a, b, m in zip(v, w, mixture, strict=True):
                m.data = client.alpha * a.data + (1 - client.alpha) * b.data
            of_mixture = torch.autograd.grad(client.loss(models[2](x), y), mixture)
            of_w = torch.autograd.grad(client.loss(models[1](x), y), w)
            slope = sum(float(((a - b) * g).sum()) for a, b, g in zip(v, w, of_mixture, strict=True))
            for a, b, g, own in zip(v, w, of_mixture, of_w, strict=True):
                a.data, b.data = a.data - RATE * client.alpha * g, b.data - RATE * own
            client.alpha = min(1.0, max(0.0, client.alpha - RATE * slope))

    for client in peer.server.clients:
        client.train = lambda client=client: train(client)


# Alignment: where random draws and a rule to stop differ


def same_draws(peer: Peer) -> None:
    """FedALA learns its first weights in eleven passes, and on the samples that we draw."""
    now = [0]
    for client in peer.server.clients:
        client.ALA.threshold = float("inf")
        start = client.local_initialization
        client.local_initialization = lambda m, n=client.id, start=start: (now.__setitem__(0, n), start(m))

    def loader(*_: Any, **__: Any) -> Loader:
        stream, (inputs, labels) = peer.fed.stream("aggregation", peer.t, now[0]), peer.data(now[0])
        drawn = torch.randperm(len(labels), generator=stream)[: len(labels) * 8 // 10]
        return Loader((inputs[drawn], labels[drawn]), iter([stream] * 11))

    peer.module("utils.ALA").DataLoader = loader


def head_and_body(peer: Peer) -> None:
    """FedRep passes over the samples once for the head, and then for the body."""
    peer.parts = ("head", "body")
