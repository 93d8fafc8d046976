"""Draws docs/images/matrix.gif, KT-pFL finding out who is alike: ``python docs/generate/animation.py``, some minutes.

It is a real run on twenty clients with two digits each, of which eight are four pairs of twins with the same two.
"""

import io
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from ktpfl_pipeline import federation
from ktpfl_pipeline.core import engine
from ktpfl_pipeline.methods import create, title
from ktpfl_pipeline.reports.figures import base
from ktpfl_pipeline.reports.style import BLUE, GREEN, INK, MUTED, NEUTRAL, PAPER, look

PICTURE = Path(__file__).parents[1] / "images" / "matrix.gif"
METHODS = ("kt_pfl", "fedmd", "local")
SEED, ROUNDS = 2, 12  # all settings were chosen with seed 1
TWINS, ONE, NONE = "the same two digits", "one digit in common", "no digit in common"
COLORS = {TWINS: "#aa3377", ONE: GREEN, NONE: NEUTRAL}
BLUES = LinearSegmentedColormap.from_list("blues", [PAPER, BLUE, "#08306b"])
MILLISECONDS, PAUSE = 700, 5000  # a frame, and the last one


@dataclass(frozen=True)
class Found:
    """What the pictures show.

    Attributes:
        digits: (N, 2) of each client, in the order in which clients are shown: twins side by side.
        weights: (rounds + 1, N, N) coefficients in that order, in units of 1/N; before the first round all are 1.
        accuracy: mean over clients after each round, by method, in 0..1.
    """

    digits: list[list[int]]
    weights: Tensor
    accuracy: dict[str, list[float]]

    def groups(self) -> dict[str, Tensor]:
        """Return the pairs of different clients with two digits, one and none in common, (N, N) bool each."""
        common = torch.tensor([[len(set(one) & set(other)) for other in self.digits] for one in self.digits])
        common.fill_diagonal_(-1)
        return {name: common == number for name, number in ((TWINS, 2), (ONE, 1), (NONE, 0))}


def simulate() -> Found:
    """Run the methods."""
    settings: Any = {"training": {"epochs": 2}, "public": {"batch": 300}, "compute": {"executor": "processes"}}
    fed = federation("digits", clients=20, partition="two_labels", seed=SEED, **settings)
    runs = {name: engine.run(create(name), fed, engine.Schedule(ROUNDS)) for name in METHODS}
    fed.executor.close()
    digits = [client.train.labels.unique().tolist() for client in fed.clients]
    order = sorted(range(len(digits)), key=digits.__getitem__)
    learned = runs["kt_pfl"].coefficients[:, order][:, :, order] * len(order)
    return Found(
        digits=[digits[n] for n in order],
        weights=torch.cat([torch.ones_like(learned[:1]), learned]),
        accuracy={
            name: [statistics.fmean(record.accuracy["after_transfer"]) for record in run.history]
            for name, run in runs.items()
        },
    )


@base.styled
def picture(found: Found, t: int) -> base.Figure:
    """Return the picture after round t."""
    figure = base.Figure(figsize=(8, 4.5))
    figure.text(0.015, 0.945, "KT-pFL learns who should learn from whom", fontsize=13, weight="bold")
    when = f"round {t} of {ROUNDS}" if t else "before the first round"
    figure.text(0.985, 0.945, when, fontsize=11, ha="right", color=MUTED)
    draw_matrix(figure.add_axes((0.065, 0.105, 0.42, 0.745)), found, t)
    draw_accuracy(figure.add_axes((0.575, 0.545, 0.31, 0.305)), found, t)
    draw_groups(figure.add_axes((0.695, 0.105, 0.25, 0.245)), found, t)
    return figure


def draw_matrix(axes: Axes, found: Found, t: int) -> None:
    """Draw the coefficients, rows and columns named by the clients' digits, with frames around twins."""
    n = len(found.digits)
    axes.imshow(found.weights[t], cmap=BLUES, norm=PowerNorm(0.5, vmin=0, vmax=float(found.weights.max())))
    names = [" ".join(map(str, own)) for own in found.digits]
    axes.set_yticks(range(n), names, fontsize=7)
    axes.set_xticks(range(n), [name.replace(" ", "\n") for name in names], fontsize=7, linespacing=0.9)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("teacher, by its two digits", fontsize=8, labelpad=2)
    axes.set_ylabel("student, by its two digits", fontsize=8, labelpad=3)
    axes.set_title("Knowledge coefficients", fontsize=9.5, pad=5)
    for row, column in found.groups()[TWINS].nonzero().tolist():
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=COLORS[TWINS], linewidth=1.6))


def draw_accuracy(axes: Axes, found: Found, t: int) -> None:
    """Draw the accuracies of the rounds up to now."""
    low = min(map(min, found.accuracy.values())) - 0.03
    axes.set(xlim=(1, ROUNDS), ylim=(low, 1.0))
    base.rounds_across(axes, 6)
    by_method = sorted(found.accuracy.items(), key=lambda entry: entry[1][t - 1])
    heights = base.apart([by_round[t - 1] for _, by_round in by_method], 0.055, low, 1.0)
    for (name, by_round), height in zip(by_method if t else [], heights, strict=False):
        color, ours = look(name).color, name == "kt_pfl"
        axes.plot(range(1, t + 1), by_round[:t], color=color, linewidth=2.2 if ours else 1.4, clip_on=False)
        axes.plot(t, by_round[t - 1], "o", color=color, markersize=5 if ours else 4, clip_on=False)
        axes.text(t + 0.3, height, title(name), color=color, weight="bold" if ours else "normal", va="center")
    axes.set_title("Mean accuracy of the clients", fontsize=9.5, pad=5)
    axes.set_xlabel("round", fontsize=8, labelpad=1)


def draw_groups(axes: Axes, found: Found, t: int) -> None:
    """Draw the mean weight on other clients by what they have in common."""
    groups = found.groups()
    means = {name: found.weights[:, pairs].mean(dim=1).tolist() for name, pairs in groups.items()}
    places = np.arange(len(groups))[::-1]
    axes.barh(
        places, [by_round[t] for by_round in means.values()], color=[COLORS[name] for name in groups], height=0.62
    )
    for place, by_round in zip(places, means.values(), strict=True):
        axes.text(by_round[t] + 0.1, place, f"{by_round[t]:.1f}", va="center", fontsize=8.5, color=INK)
    axes.axvline(1, color=MUTED, linewidth=0.9, linestyle=":")
    axes.set_yticks(places, groups, fontsize=8.5)
    for name, tick in zip(groups, axes.get_yticklabels(), strict=True):
        tick.set(color=COLORS[name], weight="bold" if name == TWINS else "normal")
    axes.set(xlim=(0, 1.15 * max(map(max, means.values()))), ylim=(-0.55, len(groups) - 0.45))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([1], ["1 = equal shares"])
    axes.set_title("Mean weight on another client with", fontsize=9.5, x=-0.52, pad=5)


def image_of(figure: base.Figure) -> Image.Image:
    """Return the picture as pixels."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=160)
    return Image.open(buffer).convert("RGB")


def animation(found: Found) -> tuple[list[Image.Image], list[int]]:
    """Return the frames, in 128 colors each, and for how many milliseconds each is shown."""
    frames = [image_of(picture(found, t)).quantize(128, dither=Image.Dither.NONE) for t in range(ROUNDS + 1)]
    return frames, [2 * MILLISECONDS, *[MILLISECONDS] * (ROUNDS - 1), PAUSE]


if __name__ == "__main__":
    (first, *rest), shown = animation(simulate())
    PICTURE.parent.mkdir(exist_ok=True)
    first.save(PICTURE, save_all=True, append_images=rest, duration=shown, loop=0, optimize=True)
