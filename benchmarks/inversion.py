"""Inversion of paired logits: a server recovers what a class of a client looks like from its predictions.

Takahashi, Liu, Liu: Breaching FedMD: Image Recovery via Paired-Logits Inversion Attack, CVPR 2023,
https://arxiv.org/abs/2304.11436. α = 5 and the temperature τ = 3 are those of the authors' code.

    KTPFL_REAL_DATA=<folder> python benchmarks/inversion.py        writes docs/images/inversion.png and a table

Each of three clients has two classes that no other client has. The public images are of the four other classes, and
blurred ones of the clients' classes; the server knows their labels. It trains a model of its own on them, and a network
from the pair of softened predictions, its own and the client's, to the public image. Then it asks this network for the
image of a pair in which the client is sure of a class and the server is not.
"""

import math
import statistics
from functools import partial
from typing import Any
from unittest.mock import patch

import measure
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from studies import markdown
from torch import Tensor, nn

from ktpfl_pipeline import methods, models
from ktpfl_pipeline.core import exchange, privacy, rng
from ktpfl_pipeline.core.dataset import LabeledDataset
from ktpfl_pipeline.core.exchange import Upload
from ktpfl_pipeline.core.federation import Federation
from ktpfl_pipeline.core.setting import Client
from ktpfl_pipeline.core.settings import Compute, Distillation, Knowledge, LocalTraining, Privacy

SEEDS, ROUNDS, CLASSES, DELTA = range(3), 8, 10, 1e-4
LAST = 3  # the server inverts the uploads of the last rounds
SETS = {"digits": (80, 80, ["mlp"]), "Fashion-MNIST": (120, 60, ["lenet", "cnn", "mlp"])}
"""Private and public images per class, and architectures."""
WAYS: dict[str, dict[str, Any]] = {
    "no protection": {},
    "no protection, τ = 1": {"softened": 1.0},
    "uint8": {"encoding": "uint8"},
    "top_k, k = 3": {"encoding": "top_k", "k": 3},
    "top_k, k = 1": {"encoding": "top_k", "k": 1},
    "noise, σ = 0.1": {"noise": 0.1},
    "noise, σ = 0.3": {"noise": 0.3},
    "noise, σ = 1": {"noise": 1.0},
    "DP-SGD, σ = 1": {"private": 1.0},
    "untrained clients": {"rounds": 0},
}
PUBLIC, PRIVATE = "public images alone", "mean private image"
Rows = dict[str, list[tuple[float, ...]]]
"""By way, for each seed: SSIM with the own and with other classes, share of hits, accuracy in percent, ε."""


def blur(images: Tensor) -> Tensor:
    """Return square images, (n, 1, H, W) uint8, of which a grid of means is left: 7 x 7 of 28 x 28, 4 x 4 of 8 x 8."""
    small = F.adaptive_avg_pool2d(images.float(), max(4, images.shape[-1] // 4))
    return F.interpolate(small, size=images.shape[-2:], mode="bilinear").round().to(torch.uint8)


def scene(name: str, seed: int) -> tuple[list[Client], LabeledDataset]:
    """Return the clients and the labeled public images; classes and images are drawn by the seed."""
    own, known, architectures = SETS[name]
    images, labels = (load_digits().images / 16 * 255).round(), load_digits().target
    if name != "digits":
        with np.load(measure.RAW / "fashion_mnist.npz") as file:
            images, labels = file["images"], file["labels"]
    draws = rng.stream(seed, "inversion")
    order, classes = torch.randperm(len(labels), generator=draws), torch.randperm(CLASSES, generator=draws).tolist()
    x, y = torch.from_numpy(images.astype("uint8"))[order, None], torch.from_numpy(labels.astype("int64"))[order]

    def part(chosen: list[int], start: int, number: int) -> LabeledDataset:
        parts = [x[y == k][start : start + number] for k in chosen]
        return LabeledDataset(torch.cat(parts), torch.tensor(chosen).repeat_interleave(number))

    clients = []
    for n, mine in enumerate([classes[0:2], classes[2:4], classes[4:6]]):
        test = part(mine, own + known, 10)
        clients.append(Client(n, architectures[n % len(architectures)], part(mine, 0, own), test, test))
    theirs, others = part(classes[:6], own, known), part(classes[6:], 0, known)
    public = torch.cat([blur(theirs.inputs), others.inputs])
    return clients, LabeledDataset(public, torch.cat([theirs.labels, others.labels]))


def federation(clients: list[Client], public: Tensor, seed: int, way: dict[str, Any]) -> Federation:
    build = partial(models.build, shape=tuple(public.shape[1:]), classes=CLASSES)
    dp_sgd = Privacy(way["private"], 1.0, DELTA) if "private" in way else None
    settings: dict[str, Any] = {
        "training": LocalTraining(epochs=3, batch_size=16, learning_rate=0.05, privacy=dp_sgd),
        "distillation": Distillation(epochs=2, batch_size=64, learning_rate=0.05),
        "knowledge": Knowledge(**{name: way[name] for name in ("encoding", "k", "noise") if name in way}),
        "compute": Compute("cpu"),
    }
    return Federation(tuple(clients), public, len(public), CLASSES, build, seed, ROUNDS, **settings)


def uploads(fed: Federation, rounds: int) -> tuple[list[Upload], float]:
    """Run KT-pFL; return what the server received in each round, and the final mean accuracy in percent."""
    received: list[Upload] = []
    made, original, ids, batch = methods.create("kt_pfl"), exchange.train_and_predict, [*fed.by_id], fed.public_batch(1)
    state = made.init(fed)

    def watched(*arguments: Any) -> Upload:
        received.append(original(*arguments))
        return received[-1]

    with patch.object(exchange, "train_and_predict", watched):
        for t in range(1, rounds + 1):
            state, _ = made.round(state, ids, t, fed)
    if not rounds:
        received.append(Upload({}, batch, fed.logits(fed.initial_models(), batch), torch.empty(0)))
    found = fed.evaluate(made.personal(state, ids, fed), "test").values()
    return received, 100 * statistics.fmean(each.accuracy for each in found)


def fitted(inputs: Tensor, targets: Tensor, outputs: int, loss: Any, epochs: int, seed: int) -> nn.Module:
    """Return a network with two hidden layers, trained with Adam."""
    with rng.seeded(seed):
        layers = [nn.Linear(inputs.shape[1], 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)]
        net = nn.Sequential(*layers)
        adam = torch.optim.Adam(net.parameters(), lr=3e-3)
        for batch in [part for _ in range(epochs) for part in torch.randperm(len(inputs)).chunk(len(inputs) // 200)]:
            adam.zero_grad()
            loss(net(inputs[batch]), targets[batch]).backward()
            adam.step()
    return net


def asked(k: int, alpha: float = 5.0) -> Tensor:
    """Return the pair for class k, (20,): the server's e^(1/α) against 1 for each other class, and a sure client."""
    weights = torch.ones(CLASSES).index_fill(0, torch.tensor(k), math.exp(1 / alpha))
    return torch.cat([weights / weights.sum(), F.one_hot(torch.tensor(k), CLASSES)])


def squared_error(found: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(found.sigmoid(), targets)


def classes_of(client: Client) -> list[int]:
    return sorted(set(client.train.labels.tolist()))


def invert(clients: list[Client], public: LabeledDataset, received: list[Upload], seed: int, softened: float) -> Tensor:
    """Return the images that the server recovers of all clients' classes, (6, 1, H, W), from 0 to 1."""
    images, found = public.inputs.flatten(1) / 255, []
    own = fitted(images, public.labels, CLASSES, F.cross_entropy, 15, seed)
    server = torch.softmax(own(images).detach() / softened, dim=1)
    targets = torch.cat([images[each.batch] for each in received])
    for n, client in enumerate(clients):
        pairs = [torch.cat([server[u.batch], torch.softmax(u.logits[n] / softened, dim=1)], 1) for u in received]
        net = fitted(torch.cat(pairs), targets, images.shape[1], squared_error, 40, seed)
        found.append(net(torch.stack([asked(k) for k in classes_of(client)])).sigmoid().detach())
    return torch.cat(found).view(-1, *public.inputs.shape[1:])


def means(owners: list[LabeledDataset], clients: list[Client]) -> Tensor:
    """Return the mean image of each class of each client, (6, 1, H, W), of its owner's samples, from 0 to 1."""
    pairs = [(own, k) for own, each in zip(owners, clients, strict=True) for k in classes_of(each)]
    return torch.stack([own.inputs[own.labels == k].float().mean(dim=0) / 255 for own, k in pairs])


def ssim(one: Tensor, other: Tensor) -> Tensor:
    """Return the structural similarity (Wang et al. 2004), (n,), of images from 0 to 1, (n, 1, H, W)."""
    mean = partial(F.avg_pool2d, kernel_size=5, stride=1)
    a, b = mean(one), mean(other)
    variances, covariance = mean(one**2) - a**2 + mean(other**2) - b**2, mean(one * other) - a * b
    found = (2 * a * b + 1e-4) * (2 * covariance + 9e-4) / ((a**2 + b**2 + 1e-4) * (variances + 9e-4))
    return found.mean(dim=(1, 2, 3))


def scores(recovered: Tensor, private: Tensor) -> tuple[float, float, float]:
    """Return the mean SSIM with the private means of the own and of the other classes, and the share of hits.

    A hit is an image that is most similar to the mean of its own class; by chance this is one of six.
    """
    table = torch.stack([ssim(image.expand_as(private), private) for image in recovered])  # (6, 6)
    own, hits = table.diagonal(), table.argmax(dim=1) == torch.arange(len(table))
    return float(own.mean()), float((table.sum() - own.sum()) / (table.numel() - len(own))), float(hits.float().mean())


def epsilon(way: dict[str, Any], fed: Federation) -> float:
    """Return a client's ε: of DP-SGD for one sample, of noise on predictions for all its data; NaN without noise."""
    if fed.training.privacy is not None:
        size, batch = len(fed.clients[0].train), fed.training.batch_size
        return privacy.spent(fed.training.privacy, [size], [ROUNDS * fed.training.epochs], batch)[0]
    rho: float = ROUNDS * fed.public_batch_size / way.get("noise", math.nan) ** 2
    return rho + 2 * math.sqrt(rho * math.log(1 / DELTA))


def measured(name: str) -> tuple[Rows, dict[str, Tensor]]:
    """Return the numbers of each way and seed, and the images of the first seed."""
    rows, images = Rows(), dict[str, Tensor]()
    for seed in SEEDS:
        clients, public = scene(name, seed)
        private, known = means([each.train for each in clients], clients), means([public] * len(clients), clients)
        rows.setdefault(PUBLIC, []).append((*scores(known, private), math.nan, math.nan))
        images = images or {PRIVATE: private, PUBLIC: known}
        for way, changes in WAYS.items():
            fed = federation(clients, public.inputs, seed, changes)
            received, accuracy = uploads(fed, changes.get("rounds", ROUNDS))
            found = invert(clients, public, received[-LAST:], seed, changes.get("softened", 3.0))
            rows.setdefault(way, []).append((*scores(found, private), accuracy, epsilon(changes, fed)))
            images.setdefault(way, found)
            print(name, seed, way, *(f"{value:.3g}" for value in rows[way][-1]), flush=True)
    return rows, images


def figure(found: dict[str, tuple[Rows, dict[str, Tensor]]]) -> Figure:
    """Draw the recovered images of the first seed, a column per class of a client, a row per way."""
    shown, drawn = [PRIVATE, PUBLIC, *WAYS], Figure(figsize=(6 * len(found), 14), dpi=100, layout="constrained")
    grid = drawn.subplots(len(shown), len(found), squeeze=False)
    for column, (name, (rows, images)) in zip(grid.T, found.items(), strict=True):
        for axes, way in zip(column, shown, strict=True):
            own, _, hits = (statistics.fmean(row[i] for row in rows.get(way, [(1, 1, 1)])) for i in range(3))
            axes.imshow(torch.cat([*images[way][:, 0]], dim=1), cmap="gray", vmin=0, vmax=1)
            axes.set_title(f"{name}, {way}: SSIM {own:.2f}, class recovered {100 * hits:.0f} %", fontsize=9, loc="left")
            axes.set_axis_off()
    return drawn


def table(rows: Rows) -> str:
    lines = [["uploads", "SSIM, own class", "SSIM, other classes", "class recovered, %", "accuracy, %", "ε"]]
    for way, runs in rows.items():
        own, others, hits, *last = (statistics.fmean(values) for values in zip(*runs, strict=True))
        rest = ["" if math.isnan(value) else f"{value:.3g}" for value in last]
        spread = statistics.stdev(run[0] for run in runs)
        lines.append([way, f"{own:.2f} ± {spread:.2f}", f"{others:.2f}", f"{100 * hits:.0f}", *rest])
    return markdown(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {name: measured(name) for name in SETS}
    text = [line for name, (rows, _) in found.items() for line in ("", f"## {name}", "", table(rows))]
    figure(found).savefig(measure.ROOT / "docs" / "images" / "inversion.png")
    head = [f"# Inversion of paired logits, {measure.today()}", "", f"{measure.hardware()}; {len(SEEDS)} seeds."]
    measure.write("inversion", head + text)
